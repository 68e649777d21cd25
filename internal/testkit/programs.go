package testkit

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Programs is the folder that holds agentd and coordinator.
type Programs string

// Build builds both programs from the module at root into a temporary folder, and returns it with the function that removes it.
func Build(root string) (Programs, func(), error) {
	dir, err := os.MkdirTemp("", "fedmesh-programs-")
	if err != nil {
		return "", nil, err
	}
	remove := func() { _ = os.RemoveAll(dir) } // in the system's folder for such things
	build := exec.Command("go", "build", "-o", dir, "./cmd/agentd", "./cmd/coordinator")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		remove()
		return "", nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return Programs(dir), remove, nil
}

// Run runs a command line of ours to its end.
func (p Programs) Run(t testing.TB, program string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(string(p), program), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// MustRun returns the output of a command that must do its work.
func (p Programs) MustRun(t testing.TB, program string, args ...string) string {
	t.Helper()
	code, stdout, stderr := p.Run(t, program, args...)
	if code != 0 {
		t.Fatalf("%s %v: exit %d\n%s", program, args, code, stderr)
	}
	return stdout
}
