package testkit

import (
	"os"
	"os/exec"
	"testing"
)

// NumpyPython returns the path of a Python interpreter that has numpy. If none is installed, it skips the test; in CI
// it fails the test. In -short mode it always skips.
func NumpyPython(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("Python is a process")
	}
	for _, p := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(p, "-c", "import numpy").Run() == nil {
			return p
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("python3 with numpy is not installed, and CI needs it")
	}
	t.Skip("python3 with numpy is not installed; `make deps` installs it")
	return ""
}
