//go:build nightly

package history

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTensorBoardReads reads a file with TensorBoard's own reader from PyPI.
func TestTensorBoardReads(t *testing.T) {
	dir := t.TempDir()
	write(t, NewTensorBoardSink(dir), rounds())
	python := virtualenv(t, "tensorboard==2.20.0", "setuptools<81")
	const script = `
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator(sys.argv[1]); a.Reload()
for tag in sorted(a.Tags()["scalars"]):
    print(tag, [(e.wall_time, e.step, e.value) for e in a.Scalars(tag)])
`
	got := output(t, python, "-c", script, filepath.Join(dir, "run-7"))
	const at3, at4 = "1772366403.5", "1772366404.5"
	for _, want := range []string{
		"risk [(" + at3 + ", 1, 2.5), (" + at4 + ", 300, 1.5)]\n",
		"r2 [(" + at3 + ", 1, 0.5), (" + at4 + ", 300, 0.75)]\n",
		"accepted [(" + at3 + ", 1, 2.0), (" + at4 + ", 300, 3.0)]\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("TensorBoard reads\n%s\nwithout %s", got, want)
		}
	}
}

// virtualenv installs packages from PyPI and returns the path of the virtual environment's python.
func virtualenv(t *testing.T, packages ...string) string {
	t.Helper()
	venv := filepath.Join(t.TempDir(), "venv")
	output(t, "python3", "-m", "venv", venv)
	python := filepath.Join(venv, "bin", "python")
	output(t, python, append([]string{"-m", "pip", "install", "--quiet"}, packages...)...)
	return python
}

// output runs a program and returns its output.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}
