package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/d2d/graph"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// runMixing runs the FedDec demonstration. It returns the result and the last line of the JSON output.
func runMixing(t *testing.T, o Options) (*MixResult, map[string]any) {
	t.Helper()
	if testing.Short() {
		t.Skip("a whole demonstration is not short")
	}
	// Create a short path, because the path of t.TempDir is too long for a Unix socket.
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	t.Setenv("TMPDIR", dir)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(4+o.Rounds)*patience)
	defer cancel()
	var out, errs bytes.Buffer
	o.Algorithm, o.JSON, o.Stdout, o.Stderr = spec.FedDec, true, &out, &errs
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	r, err := RunMixing(ctx, o)
	if err != nil {
		t.Fatalf("%v\n%s", err, &errs)
	}
	if errs.Len() > 0 {
		t.Errorf("on stderr:\n%s", &errs)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if want := 2 + 2*r.Rounds; len(lines) != want {
		t.Errorf("%d lines, want %d", len(lines), want)
	}
	var last map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	return r, last
}

// TestFedDecBeatsFedAvg checks that FedDec gets closer to the optimum than FedAvg after the same number of rounds.
// Without simulated faults, every flow must be in time and mixing must conserve the mean.
func TestFedDecBeatsFedAvg(t *testing.T) {
	o := Defaults()
	o.Rounds, o.Out = 6, filepath.Join(t.TempDir(), "out")
	r, last := runMixing(t, o)
	if !(r.Final < r.FedAvgFinal/2) {
		t.Errorf("FedDec ends at %.3g, FedAvg at %.3g", r.Final, r.FedAvgFinal)
	}
	if r.FlowsLate != 0 || r.FlowsUnreconciled != 0 || !(r.MeanDrift <= 1e-5) {
		t.Errorf("%+v", r)
	}
	for _, key := range []string{"final", "fedavg_final", "uplink_bytes", "d2d_bytes", "seconds"} {
		if x, ok := last[key].(float64); !ok || x <= 0 {
			t.Errorf("%s is %v", key, last[key])
		}
	}
	for _, key := range []string{"mean_drift", "flows_late", "flows_unreconciled"} {
		if _, ok := last[key].(float64); !ok {
			t.Errorf("%s is %v", key, last[key])
		}
	}
	if last["event"] != "result" || last["algorithm"] != "feddec" {
		t.Errorf("the last line is %v", last)
	}
}

// TestLyingNeighborDoesLittle checks that clipping limits the damage of one agent in 20 that sends false snapshots to
// its neighbours. Without clipping, the three kinds of false snapshots lead to losses of 0.57, 0.73 and 2e50. Without a
// dishonest agent, the loss is 0.163.
func TestLyingNeighborDoesLittle(t *testing.T) {
	const clean = 0.163
	for _, lie := range []string{"", "mix 5", "mix flip", "mix 1e30"} {
		t.Run(lie, func(t *testing.T) {
			o := Defaults()
			o.Rounds, o.Clip, o.Lie = 6, 1e6, lie
			var out, errs bytes.Buffer
			o.Algorithm, o.JSON, o.Stdout, o.Stderr = spec.FedDec, true, &out, &errs
			if testing.Short() {
				t.Skip("a whole demonstration is not short")
			}
			r, err := RunMixing(t.Context(), o)
			if err != nil {
				t.Fatalf("%v\n%s", err, &errs)
			}
			if !(r.Final <= 1.15*clean) {
				t.Errorf("the loss is %.4g", r.Final)
			}
			if ended := strings.Count(errs.String(), "parameter exchange between two neighbours "+
				"suspended"); (ended > 0) != (lie != "") {
				t.Errorf("%d edges were left out:\n%s", ended, &errs)
			}
		})
	}
}

// conserved runs 20 agents with lost, duplicated and reordered messages, and kills and restarts one of them. It checks
// that mixing conserves the mean of all parameters and that the model is useful.
func conserved(t *testing.T, change func(*Options)) {
	t.Helper()
	o := Defaults()
	o.Rounds, o.Loss, o.Duplicates, o.Delay, o.Kill = 5, 0.2, 0.05, 5*time.Millisecond, 1
	change(&o)
	r, _ := runMixing(t, o)
	if !(r.MeanDrift <= 1e-5) {
		t.Errorf("the mean drifted by %.3g", r.MeanDrift)
	}
	if r.AgentsKilled != 1 {
		t.Errorf("%d agents were killed, want 1", r.AgentsKilled)
	}
	if r.FlowsLate == 0 {
		t.Error("no flow was late: nothing was tried")
	}
	if !(r.Final < 0.9) {
		t.Errorf("the loss is %.3g, of 1 at the start", r.Final)
	}
}

func TestMeanIsConserved(t *testing.T) { conserved(t, func(*Options) {}) }

func TestMeanIsConservedOverMosquitto(t *testing.T) {
	uplink, site := brokers.OpenMosquitto(t), brokers.OpenMosquitto(t)
	conserved(t, func(o *Options) { o.Broker, o.SiteBroker = uplink, site })
}

func TestMeanIsConservedOfRoundedSnapshots(t *testing.T) {
	conserved(t, func(o *Options) { o.Codec = "bfloat16" })
}

// TestFedDecEqualsSimulation checks that a federation without faults learns exactly the same model as the simulator,
// with each kind of broker and with one or two brokers.
func TestFedDecEqualsSimulation(t *testing.T) {
	o := Defaults()
	o.Rounds = 3
	want := simulated(t, &o)
	for _, tt := range []struct{ name, broker string }{{"embedded", ""}, {"mosquitto", brokers.OpenMosquitto(t)}} {
		t.Run(tt.name, func(t *testing.T) {
			o := o
			o.Broker = tt.broker
			if r, _ := runMixing(t, o); r.Model != want {
				t.Errorf("model %.8s, the simulator's is %.8s", r.Model, want)
			}
		})
	}
}

// simulated returns the hash of the model that the simulator computes from the same data.
func simulated(t *testing.T, o *Options) string {
	t.Helper()
	p, err := data.NewRegression[float32](regression, regressionAgents, o.Seed)
	if err != nil {
		t.Fatal(err)
	}
	for k := range p.Agents {
		p.Labels = append(p.Labels, agentName(k))
	}
	g, err := graph.ConnectedGeographicGraph(regressionAgents, regressionRadius, rand.New(rand.NewPCG(o.Seed, 1)))
	if err != nil {
		t.Fatal(err)
	}
	w, err := graph.NewMixingMatrix(g, spec.EdgeWeightsBestConstant)
	if err != nil {
		t.Fatal(err)
	}
	e := sim.Default()
	e.Name, e.Seed, e.Precision, e.Algorithm = "demo", o.Seed, sim.Float32, spec.FedDec
	e.Mixing.ServerEvery, e.Mixing.FirstBlock = regressionSteps, regressionSteps
	e.Rounds, e.Participants.Count, e.Sampling = o.Rounds*regressionSteps+1, 2, spec.SamplingWithReplacement
	e.BatchSize = sim.Each(1)
	e.StepSize = spec.StepSize{IsDiminishing: true}
	r, err := sim.RunInstances(t.Context(), e,
		func(int) (sim.Instance[float32], error) { return sim.Instance[float32]{Problem: p, Mixing: w}, nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, len(r.Final[0]))
	for j, v := range r.Final[0] {
		x[j] = float32(v)
	}
	digest := wire.BlobDigest(wire.AppendVector(nil, x))
	return fmt.Sprintf("%x", digest[:])
}
