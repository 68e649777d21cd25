//go:build nightly

package interop

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestDigits trains a scikit-learn network (examples/digits.py) on three agentd processes over Mosquitto. Each agentd
// has a third of the images of handwritten digits. The model must recognise digits with which no device has trained.
func TestDigits(t *testing.T) {
	x := findTools(t)
	f := testkit.NewFederation(t, x.programs, "digits", brokers.OpenMosquitto(t))
	keys, initial := "", ""
	var e *example
	for part := range 3 {
		id := fmt.Sprintf("d%d", part)
		keys += f.AddAgent(t, id, "unused\n0\n")
		e = newExample(t, findPython(t, "numpy", "sklearn"), "digits:make", strconv.Itoa(part), "3")
		initial = e.initial(t, f)
		text, err := os.ReadFile(f.Path(id + ".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		f.Write(t, id+".yaml", string(text)+fmt.Sprintf("trainers: [{name: digits, command: [\"%s\"], env: [%q]}]\n",
			strings.Join(e.program, `", "`), "PYTHONPATH="+e.path))
	}
	f.ConfigureCoordinator(t,
		"{name: digits, model: {kind: external, trainer: digits, initial: "+initial+"}, batch_size: 32, "+
			"step_size: {constant: 0.3, normalize: false}, steps: {budget: 1h, min: 20, max: 20}}", keys,
		"{participants: 3, quorum: 3, rounds: 20, deadline: 60s, gather: {target: 3, minimum: 3, within: 60s, "+
			"spread: 0s}}")
	lead := f.Daemon(t, "coordinator", "coordinator")
	endsWell(t, lead)
	for part := range 3 {
		endsWell(t, f.Daemon(t, "agentd", fmt.Sprintf("d%d", part)))
	}
	lead.Await(t, "run finished")
	x.programs.MustRun(t, "coordinator", "model", "export", "--out", f.Path("model"), "--state-dir", f.Path("state"))
	const script = `
import sys, digits, fedmesh.model
print(*(digits.make(str(k), "3").evaluate(fedmesh.model.tensors(sys.argv[1])).metrics["accuracy"] for k in range(3)))`
	shares := strings.Fields(e.run(t, f, "-B", "-c", script, f.Path("model")))
	if len(shares) != 3 {
		t.Fatal(shares)
	}
	for _, text := range shares {
		if share, err := strconv.ParseFloat(text, 64); err != nil || !(share > 0.8) {
			t.Errorf("the model tells %v of the digits that are held out at the devices, want more than 0.8", shares)
		}
	}
}
