package scale

import (
	"encoding/json"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "keep what was measured in fit.json, and write docs/SCALE.md")

// fitFile is the file of the newest stored measurement.
const fitFile = "fit.json"

func loadFit(t *testing.T) *Fit {
	t.Helper()
	text, err := os.ReadFile(fitFile)
	if err != nil {
		t.Fatal(err)
	}
	var f Fit
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	return &f
}

// TestPage checks that docs/SCALE.md matches the stored measurement, and that the formula fitted to this measurement is
// accurate enough.
func TestPage(t *testing.T) {
	f, path := loadFit(t), filepath.Join("..", "..", "..", "docs", "SCALE.md")
	kept := *f
	if err := f.solve(); err != nil {
		t.Fatal(err)
	}
	for name, u := range map[string][2]float64{"the coordinator": {f.Coordinator.Update, kept.Coordinator.Update},
		"Mosquitto": {f.Broker.Recipient, kept.Broker.Recipient},
		"NATS":      {f.Cluster.Broker.Recipient, kept.Cluster.Broker.Recipient}} {
		if !(math.Abs(u[0]/u[1]-1) <= 1e-6) {
			t.Errorf("%s: the kept units are not those of the samples: %g, want %g", name, u[1], u[0])
		}
	}
	if err := f.check(); err != nil {
		t.Error(err)
	}
	text, err := kept.Page()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if old, err := os.ReadFile(path); err != nil || string(old) != text {
		t.Errorf("docs/SCALE.md is not what the fit says (%v): go test ./lab/bench/scale -run TestPage -update",
			err)
	}
}

// TestFit checks that the fit recovers known unit costs from loads with measurement errors of 5 %, and that no unit
// cost is negative.
func TestFit(t *testing.T) {
	want, ofBroker := Units{Hello: 3e-4, Update: 1e-3, MB: 6e-3},
		Units{Hello: 6e-5, Update: 1e-4, MB: 1e-3, Recipient: 2.5e-5}
	onNATS := Cluster{Broker: Units{Hello: 3e-4, Update: 1e-3, MB: 5e-3, Recipient: 1e-4},
		Connection: Connection{Idle: 0.05}}
	rng := rand.New(rand.NewPCG(1, 2))
	f := Fit{Cluster: Cluster{Connection: onNATS.Connection}}
	for i := range 24 {
		n := 500 * math.Exp2(float64(i%3))
		l := Load{Rounds: 2, Hellos: n * rng.Float64(), Updates: n * rng.Float64(), Up: n / 2 * rng.Float64(),
			Recipients: 4 * n}
		l.Down = l.Up
		c, b := l.ofCoordinator(), l.ofBroker()
		noise := func() float64 { return 0.95 + 0.1*rng.Float64() }
		f.Samples = append(f.Samples, Sample{Load: l, Coordinator: want.Cost(&c) * noise(),
			Broker: ofBroker.Cost(&b) * noise()})
		seconds := 1 + 10*rng.Float64()
		f.Cluster.Samples = append(f.Cluster.Samples, Sample{Load: l, Seconds: seconds,
			Broker: onNATS.Cost(l, seconds) * noise()})
	}
	if err := f.solve(); err != nil {
		t.Fatal(err)
	}
	for name, u := range map[string][2]float64{"hello": {f.Coordinator.Hello, want.Hello},
		"update": {f.Coordinator.Update, want.Update}, "MB": {f.Coordinator.MB, want.MB},
		"MB at the broker":  {f.Broker.MB, ofBroker.MB},
		"recipient":         {f.Broker.Recipient, ofBroker.Recipient},
		"update on NATS":    {f.Cluster.Broker.Update, onNATS.Broker.Update},
		"recipient on NATS": {f.Cluster.Broker.Recipient, onNATS.Broker.Recipient}} {
		if math.Abs(u[0]/u[1]-1) > 0.3 {
			t.Errorf("%s: %g, want %g", name, u[0], u[1])
		}
	}
	if f.Coordinator.Round < 0 {
		t.Errorf("a round costs %g s", f.Coordinator.Round)
	}
}

// TestCheck checks that the method check returns an error for a formula that is inaccurate or gives no number.
func TestCheck(t *testing.T) {
	right := Fit{Coordinator: Units{Update: 1e-3}, Broker: Units{Update: 1e-4},
		Held: Sample{Load: Load{Updates: 1000}, Coordinator: 1, Broker: 0.1},
		Cluster: Cluster{Broker: Units{Update: 1e-3}, Connection: Connection{Idle: 0.1},
			Held: Sample{Load: Load{Updates: 1000}, Broker: 2, Seconds: 10}}}
	if err := right.check(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Fit){
		"coordinator": func(f *Fit) { f.Held.Coordinator = 1.5 },
		"broker":      func(f *Fit) { f.Held.Broker = 0.07 },
		"NATS":        func(f *Fit) { f.Cluster.Held.Broker = 1 }, // an idle cluster that uses no CPU time
		"nothing":     func(f *Fit) { f.Held = Sample{} },
	} {
		f := right
		spoil(&f)
		if err := f.check(); err == nil || !strings.Contains(err.Error(), "predicted cost is wrong by") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := fit([]Load{{Updates: 1, Hellos: 1}}, []float64{1}); err == nil {
		t.Error("one measurement tells two units")
	}
}
