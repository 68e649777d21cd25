package interop

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestPackage runs the tests of packaging/python that need no modules except numpy and the imports of fedmesh.agent.
// `tools/python.sh all` runs the other tests, too, and tests a wheel.
func TestPackage(t *testing.T) {
	t.Parallel()
	python := findPython(t, append([]string{"pytest"}, client...)...)
	folder := filepath.Join("..", "..", "packaging", "python")
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			_, err = os.Stat(path) // calling Stat makes go test run this test again when the file changes
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-B", "-m", "pytest", "-q")
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "PYTHONPATH=src", "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
