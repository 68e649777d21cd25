package testkit

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Programs is the path of the folder that contains the compiled programs agentd, coordinator and fedlab.
type Programs string

// Main implements a TestMain function. It builds the programs of the module at root into a temporary folder, stores the
// folder in programs and runs the tests. In -short mode it runs no tests. Main returns the exit code.
func Main(m *testing.M, root string, programs *Programs) int {
	flag.Parse()
	if testing.Short() {
		fmt.Println("no test of the finished programs is short")
		return 0
	}
	dir, err := os.MkdirTemp("", "fedmesh-programs-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = BuildInto(root, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*programs = Programs(dir)
	return m.Run()
}

// BuildInto builds the programs of the module at root into the folder dir, with the build flags of a release. env
// contains additional environment variables such as GOARCH=arm64.
func BuildInto(root, dir string, env ...string) error {
	flags, err := os.ReadFile(filepath.Join(root, "tools", "buildflags"))
	if err != nil {
		return err
	}
	args := append([]string{"build"}, strings.Fields(string(flags))...)
	build := exec.Command("go", append(args, "-o", dir+"/", "./cmd/agentd", "./cmd/coordinator", "./cmd/fedlab")...)
	build.Dir, build.Env = root, append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// Run runs one of the fedmesh programs until it ends, and returns its exit code and output.
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

// MustRun runs one of the fedmesh programs and returns its standard output. It fails the test if the exit code is not
// 0.
func (p Programs) MustRun(t testing.TB, program string, args ...string) string {
	t.Helper()
	code, stdout, stderr := p.Run(t, program, args...)
	if code != 0 {
		t.Fatalf("%s %v: exit %d\n%s", program, args, code, stderr)
	}
	return stdout
}
