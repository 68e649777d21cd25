package interop

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/fedmesh/fedmesh/store"
)

// TestGoldenFiles runs selftest.py, in which the Python client reads, verifies and writes the golden messages of
// package wire, and rejects damaged copies of them.
func TestGoldenFiles(t *testing.T) {
	cmd := exec.Command(findPython(t, client...), "-B", "selftest.py",
		filepath.Join("..", "..", "wire", "testdata", "golden"))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+newExample(t, "").path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestPythonAgent runs federations in which no round can close without the Python client.
func TestPythonAgent(t *testing.T) {
	x := findTools(t)
	t.Run("inline", x.testInline)
	t.Run("chunks", x.testChunks)
}

// testInline trains with models and updates that are small enough to be sent inline in other messages. testInline
// checks the learned coefficients.
func (x *tools) testInline(t *testing.T) {
	p := &problem{
		features: []string{"temperature", "pressure", "load"}, slopes: []float64{2, -3, 0.5}, intercept: 7, rows: 200,
		rounds: 3,
		task: "  batch_size: 32\n  response: {probability: 0.8}\n  gradient_noise: {law: laplace, variance: " +
			"1e-6}\n  step_size: {constant: 2}\n  steps: {budget: 10s, min: 5, max: 10}\n  model: {kind: linear, " +
			"bias: true, ridge: 1e-9}",
	}
	f := x.start(t, p, map[string]uint64{"a": 1, "b": 2, "python": 3})
	f.await(t)
	f.checkAccepted(t, 1+p.rounds)
	slopes, intercept := f.model(t)
	for j, want := range append(p.slopes, p.intercept) {
		got := append(slopes, intercept)[j]
		if math.Abs(got-want) > 0.1 {
			t.Errorf("coefficient %d is %.3f, want %v", j, got, want)
		}
	}
}

// testChunks trains with a task and a model that are sent in chunks. The task has more chunks than a client may request
// at once. Some update chunks are sent before the coordinator grants a credit. The client has the same rows as agent a,
// so its update must have the same length as the update of agent a.
func (x *tools) testChunks(t *testing.T) {
	p := &problem{
		slopes: []float64{2, -3, 0.5}, rows: 12, rounds: 2,
		task: "  batch_size: 0\n  step_size: {constant: 3e-4}\n  steps: {budget: 10s, min: 2, max: 2}\n",
	}
	for j := range 15400 {
		// The names are short, because they are passed on a command line.
		p.features = append(p.features, strconv.FormatInt(int64(0x1000+j), 16))
	}
	f := x.start(t, p, map[string]uint64{"a": 1, "b": 2, "python": 1})
	f.await(t)
	f.checkAccepted(t, 1+p.rounds)
	for _, want := range []string{
		// These lines are for the task, the task with column means, and the models.
		"bytes in 2 chunks", "bytes in 6 chunks", "pulled 61604 bytes in 2 chunks",
		"round 1: 4 chunks go ahead", "round 1: credit for 1 chunks", "round 2: 2 chunks go ahead",
		"round 3: 2 chunks go ahead",
	} {
		f.python.Await(t, want)
	}
	norms := map[string]map[int]float64{"a": {}, "b": {}, "python": {}}
	for _, e := range f.events(t, "update accepted") {
		norms[e.Agent][e.Round] = e.Norm
	}
	for round := 1; round <= 1+p.rounds; round++ {
		if got, want := norms["python"][round], norms["a"][round]; !(math.Abs(got/want-1) < 0.001) {
			t.Errorf("round %d: the update of python has length %v, that of agent a on the same rows %v", round, got,
				want)
		}
	}
	models := f.events(t, "model ready")
	if first, last := models[0].Risk, models[len(models)-1].Risk; !(last < 0.9*first) {
		t.Errorf("the risk went from %v to %v", first, last)
	}
}

// checkAccepted checks that rounds 1 to last closed with the updates of all three agents. The client must have received
// a message that its own update was accepted.
func (f *federation) checkAccepted(t *testing.T, last int) {
	t.Helper()
	closed := f.events(t, "round closed")
	if len(closed) != last {
		t.Errorf("%d rounds were closed, want %d", len(closed), last)
	}
	for i, e := range closed {
		if e.Round != i+1 || e.Accepted != 3 {
			t.Errorf("closing %d is of round %d, with %d updates", i+1, e.Round, e.Accepted)
		}
		f.python.Await(t, fmt.Sprintf("round %d: accepted", e.Round))
	}
}

// model returns the coefficients of the newest model, converted to the units of the data.
func (f *federation) model(t *testing.T) (slopes []float64, intercept float64) {
	t.Helper()
	file := f.MustRun(t, "coordinator", "model", "export", "--state-dir", f.Path("state"), "--out", "-")
	tensors, meta, err := store.DecodeSafetensors([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	vectors := map[string][]float32{}
	for _, tensor := range tensors {
		vectors[tensor.Name] = make([]float32, len(tensor.Data)/4)
		if err := binary.Read(bytes.NewReader(tensor.Data), binary.LittleEndian, vectors[tensor.Name]); err != nil {
			t.Fatal(err)
		}
	}
	var mean, scale []float64
	for text, list := range map[string]*[]float64{meta["mean"]: &mean, meta["scale"]: &scale} {
		if err := json.Unmarshal([]byte(text), list); err != nil {
			t.Fatalf("metadata %q: %v", text, err)
		}
	}
	weights, m := vectors["layer0.weight"], len(mean)-1
	intercept = mean[m] + scale[m]*float64(vectors["layer0.bias"][0])
	for j, weight := range weights {
		slope := float64(weight) * scale[m] / scale[j]
		slopes, intercept = append(slopes, slope), intercept-slope*mean[j]
	}
	return slopes, intercept
}
