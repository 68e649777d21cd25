//go:build nightly

package export_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fedmesh/fedmesh/modelfile/export"
)

// predictONNX is a Python program. For each row in the second file, it prints the value and the outputs of the model in
// the first file.
const predictONNX = `
import sys
import numpy as np
import onnx
import onnxruntime

onnx.checker.check_model(onnx.load(sys.argv[1]), full_check=True)
session = onnxruntime.InferenceSession(sys.argv[1])
rows = np.loadtxt(sys.argv[2], dtype=np.float32, ndmin=2)
out = dict(zip([o.name for o in session.get_outputs()], session.run(None, {"row": rows})))
for i in range(len(rows)):
    values = out["value"][i] if "value" in out else out["probabilities"][i]
    first = out["class"][i] if "class" in out else values[0]
    print(repr(float(first)), *(repr(float(v)) for v in values))
`

// TestONNX checks that predictions of the ONNX runtime from PyPI equal the predictions of agentd.
func TestONNX(t *testing.T) {
	dir := t.TempDir()
	python := filepath.Join(dir, "venv", "bin", "python")
	for _, c := range [][]string{{"python3", "-m", "venv", filepath.Join(dir, "venv")},
		{python, "-m", "pip", "install", "--quiet", "numpy", "onnx", "onnxruntime"}} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c, err, out)
		}
	}
	for name, m := range models(t) {
		file, err := export.Encode(export.FormatONNX, m)
		if err != nil {
			t.Fatal(err)
		}
		all := rows(m)
		model, data := filepath.Join(dir, name+".onnx"), filepath.Join(dir, name+".txt")
		for path, content := range map[string][]byte{model: file, data: []byte(text(all))} {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		predict := exec.Command(python, "-c", predictONNX, model, data)
		predict.Stderr = os.Stderr
		said, err := predict.Output()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Run(name, func(t *testing.T) { compare(t, m, all, string(said)) })
	}
}
