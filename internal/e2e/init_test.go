package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// founded lists typical federations. Each entry contains the function from the two standardised features z₁ and z₂ of a
// device to the target, and the expected learning progress.
var founded = []struct {
	name   string
	flags  []string
	target func(r *rand.Rand, z1, z2 float64) float64
	by     int     // last round in which the goal must be reached
	share  float64 // maximum risk as a fraction of the risk in the first round
}{
	{"linear", nil, func(r *rand.Rand, z1, z2 float64) float64 {
		return 20 + 8*z1 - 5*z2 + 2*r.NormFloat64()
	}, 10, 0.08},
	{"logistic", nil, func(r *rand.Rand, z1, z2 float64) float64 {
		return float64(min(1, int(r.Float64()+1/(1+math.Exp(-4*z1+3*z2)))))
	}, 20, 0.5},
	{"softmax", nil, func(r *rand.Rand, z1, z2 float64) float64 {
		return float64(int(1 + max(-1, min(1, math.Round(1.2*z1-0.8*z2+0.2*r.NormFloat64())))))
	}, 40, 0.5},
	{"mlp", []string{"--model", "mlp"}, func(r *rand.Rand, z1, z2 float64) float64 {
		return 20 + 8*math.Sin(1.5*z1) + 3*z2*z2 + r.NormFloat64()
	}, 60, 0.35},
	{"autoencoder", []string{"--model", "autoencoder"}, func(r *rand.Rand, z1, z2 float64) float64 {
		return 20 + 8*z1 + 0.1*z2 + r.NormFloat64()
		// the power depends on the temperature; the code layer has a single unit for temperature, power and humidity
	}, 40, 0.45},
	{"feddec", []string{"--algorithm", "feddec"}, func(r *rand.Rand, z1, z2 float64) float64 {
		return 20 + 8*z1 - 5*z2 + 2*r.NormFloat64()
	}, 15, 0.1},
}

// TestFoundedFederationsLearn follows the instructions that `coordinator init` prints, with five devices and without
// editing any file. The federation must learn within a few rounds and then finish.
func TestFoundedFederationsLearn(t *testing.T) {
	t.Parallel()
	broker := brokers.OpenMosquitto(t)
	for i, kind := range founded {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), kind.name)
			var files []string
			for d := range 5 {
				files = append(files, filepath.Join(t.TempDir(), "measured.csv"))
				rows := deviceRows(rand.New(rand.NewPCG(uint64(i), uint64(d))), d, kind.target)
				if err := os.WriteFile(files[d], rows, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			said := programs.MustRun(t, "coordinator", append([]string{"init", kind.name, "--dir", dir,
				"--broker", broker, "--from", files[0]}, kind.flags...)...)
			learns := "from temperature, humidity:"
			if kind.name == "autoencoder" {
				learns = "the relations between temperature, humidity, power:"
			}
			if !strings.Contains(said, kind.name+" learns ") || !strings.Contains(said, learns) {
				t.Errorf("init says %s", said)
			}
			devices := enrolled(t, dir, files)
			programs.MustRun(t, "coordinator", "config", "check", "--config", filepath.Join(dir, "coordinator.yaml"))
			lead := programs.Start(t, "coordinator", "run", "--config", filepath.Join(dir, "coordinator.yaml"),
				"--set", "round.pause=0s", "--set", "round.gather.spread=10ms", "--set", "metrics.listen=",
				"--set", "console.listen=")
			lead.Await(t, "run finished version=")
			testkit.StopAll(t, append(devices, lead)...)
			risks := risksOf(t, filepath.Join(dir, "state", "history.jsonl"))
			t.Logf("%s: %d rounds; the risk was %.3g in round 1, %.3g in round %d, and %.3g in the end", kind.name,
				len(risks), risks[0], risks[kind.by-1], kind.by, risks[len(risks)-1])
			if left := risks[kind.by-1] / risks[0]; !(left <= kind.share) {
				t.Errorf("after %d rounds %.2f of the risk is left, more than %v", kind.by, left, kind.share)
			}
		})
	}
}

// deviceRows returns a device's CSV file with physical units and an unused column.
func deviceRows(r *rand.Rand, device int, target func(r *rand.Rand, z1, z2 float64) float64) []byte {
	var b strings.Builder
	b.WriteString("station,temperature,humidity,power\n")
	for range 300 {
		z1, z2 := r.NormFloat64()+0.2*float64(device-2), r.NormFloat64()
		fmt.Fprintf(&b, "s%d,%.2f,%.1f,%.4g\n", device, 12+6*z1, 60+15*z2, target(r, z1, z2))
	}
	return []byte(b.String())
}

// enrolled follows the printed instructions on each device and starts the agent of the device.
func enrolled(t *testing.T, dir string, files []string) (devices []*testkit.Process) {
	t.Helper()
	list, err := os.OpenFile(filepath.Join(dir, "agents.keys"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	agent, err := os.ReadFile(filepath.Join(dir, "agentd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for i, file := range files {
		device, id := filepath.Dir(file), fmt.Sprint("device-", i+1)
		if err := os.WriteFile(filepath.Join(device, "agentd.yaml"), agent, 0o600); err != nil {
			t.Fatal(err)
		}
		public := programs.MustRun(t, "agentd", "key", "new", filepath.Join(device, "agent.key"))
		if _, err := fmt.Fprintf(list, "%s %s", id, public); err != nil {
			t.Fatal(err)
		}
		run := exec.Command(filepath.Join(string(programs), "agentd"), "run", "--config", "agentd.yaml",
			"--set", "id="+id, "--set", "data.csv=measured.csv")
		run.Dir = device
		devices = append(devices, testkit.Start(t, run))
	}
	return devices
}

// risksOf returns the risk (mean loss) of each round in a history file.
func risksOf(t *testing.T, path string) (risks []float64) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var of struct {
			Kind, Outcome string
			Risk          *float64
		}
		if err := json.Unmarshal([]byte(line), &of); err != nil {
			t.Fatal(err)
		}
		if of.Risk != nil {
			risks = append(risks, *of.Risk)
		}
	}
	return risks
}
