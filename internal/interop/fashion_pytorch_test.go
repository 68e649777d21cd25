//go:build pytorch

package interop

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestFashion trains a convolutional PyTorch network (examples/fashion.py) on the Fashion-MNIST images with three
// agentd processes over Mosquitto. The model must classify images with which no device has trained. tools/python.sh
// runs this test with PyTorch from PyPI.
func TestFashion(t *testing.T) {
	x := findTools(t)
	python := findPython(t, "numpy", "torch")
	f := testkit.NewFederation(t, x.programs, "fashion", brokers.OpenMosquitto(t))
	keys, initial := "", ""
	var e *example
	const rounds = 12
	for part := range 3 {
		id := fmt.Sprintf("d%d", part)
		keys += f.AddAgent(t, id, "unused\n0\n")
		e = newExample(t, python, "fashion:make", strconv.Itoa(part), "3", "2000")
		if part == 0 {
			initial = e.initial(t, f)
		}
		configure(t, f, id, e.trainers("fashion", f.Dir))
	}
	f.ConfigureCoordinator(t,
		"{name: fashion, model: {kind: external, trainer: fashion, initial: "+initial+"}, batch_size: 32, "+
			"step_size: {constant: 0.1, normalize: false}, steps: {budget: 1h, min: 20, max: 20}}", keys,
		fmt.Sprintf("{participants: 3, quorum: 3, rounds: %d, deadline: 120s, evaluation: {every: %d, min_rows: 100}, "+
			"gather: {target: 3, minimum: 3, within: 120s, spread: 0s}}", rounds, rounds))
	lead := f.Daemon(t, "coordinator", "coordinator")
	endsWell(t, lead)
	for part := range 3 {
		endsWell(t, f.Daemon(t, "agentd", fmt.Sprintf("d%d", part)))
	}
	lead.AwaitFor(t, 4*time.Minute, "run finished")
	// Each device evaluates the last model on one tenth of the test images.
	said := lead.Await(t, fmt.Sprintf("model evaluated on the held-out rows of agents version=%d agents=3 "+
		"present=3 rows=3000",
		rounds))
	_, text, _ := strings.Cut(said, " accuracy=")
	share, err := strconv.ParseFloat(strings.Fields(text + " ?")[0], 64)
	if err != nil || !(share > 0.68) {
		t.Errorf("the model tells %v of the images, want more than 0.68: %s", share, said)
	}
	t.Logf("after %d rounds of 20 steps over 32 images the model tells %v of 3,000 others", rounds, share)
}
