//go:build linux

package machine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience bounds each wait; none is ever that long.
const patience = time.Minute

// DropDir is where a machine sees the folder that Boot was given.
const DropDir = "/drop"

// Machine is a Debian that has booted. Its methods fail the test when they
// cannot do what they say.
type Machine struct {
	t    testing.TB
	init int // the process id of its systemd, outside
}

var booted atomic.Int64

// Boot boots a machine that sees a folder of this one, read-only, at Drop. It
// ends with the test.
func Boot(t testing.TB, drop string) *Machine {
	t.Helper()
	skipWithoutPrograms(t, "systemd-nspawn", "nsenter")
	console := filepath.Join(t.TempDir(), "console")
	output, err := os.Create(console)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	root, name := rootfs(t), fmt.Sprintf("fedmesh-%d-%d", os.Getpid(), booted.Add(1))
	groups := ownGroups(t, name)
	container := exec.Command("sh", append([]string{"-ec", `for group; do echo $$ >"$group/cgroup.procs"; done
		exec systemd-nspawn --volatile=overlay --directory="$ROOT" --register=no --keep-unit --machine="$NAME" --private-network \
			--bind-ro="$DROP" --boot --console=passive`, name}, groups...)...)
	container.Env = append(os.Environ(), "ROOT="+root, "NAME="+name, "DROP="+drop+":"+DropDir)
	container.Stdout, container.Stderr = output, output
	// a test that is killed leaves nothing behind
	container.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := container.Start(); err != nil {
		t.Fatal(err)
	}
	m := &Machine{t: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = container.Wait()
	}()
	t.Cleanup(func() {
		if t.Failed() {
			m.logDiagnostics(console)
		}
		m.powerOff(container.Process, ended)
		removeGroups(t, groups)
	})
	m.Await("systemd has started", func() bool {
		m.init = childNamed(container.Process.Pid, "systemd")
		return m.init != 0
	})
	m.Await("the machine has booted", func() bool {
		_, state := m.Run("systemctl", "is-system-running")
		if state == "degraded" {
			t.Fatalf("units have failed at boot:\n%s", m.Must("systemctl", "--failed"))
		}
		return state == "running"
	})
	return m
}

// logDiagnostics writes what the machine can say of a failure: its journal, or what came
// before there was one.
func (m *Machine) logDiagnostics(console string) {
	if m.init != 0 {
		if journal, err := m.command("journalctl", "--no-pager", "--boot", "--lines=60").Output(); err == nil {
			m.t.Logf("the machine's journal:\n%s", journal)
			return
		}
	}
	if text, err := os.ReadFile(console); err == nil {
		m.t.Logf("the machine's console:\n%s", text)
	}
}

// powerOff ends the container as a power cut would. The test is ending too, so
// nothing is demanded.
func (m *Machine) powerOff(container *os.Process, ended <-chan struct{}) {
	if m.init != 0 {
		_ = syscall.Kill(m.init, syscall.SIGKILL)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		_ = container.Kill()
		<-ended
	}
}

// childNamed returns the process id of a process's child that runs a program,
// or 0.
func childNamed(parent int, program string) int {
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	if err != nil {
		return 0
	}
	for _, child := range strings.Fields(string(list)) {
		name, err := os.ReadFile("/proc/" + child + "/comm")
		if err != nil || strings.TrimSpace(string(name)) != program {
			continue
		}
		var pid int
		if _, err := fmt.Sscan(child, &pid); err == nil {
			return pid
		}
	}
	return 0
}

// command prepares a command on the machine, as root and with no environment
// but a path.
func (m *Machine) command(args ...string) *exec.Cmd {
	enter := []string{
		fmt.Sprint("--target=", m.init), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd",
		"env", "--ignore-environment", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	}
	return exec.Command("nsenter", append(enter, args...)...)
}

// Run runs a command on the machine, as root, and returns its exit code and
// what it wrote to both outputs, without blanks around.
func (m *Machine) Run(args ...string) (code int, output string) {
	m.t.Helper()
	out, err := m.command(args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatalf("%v: %v", args, err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return code, string(bytes.TrimSpace(out))
}

// Must is Run for a command that must succeed.
func (m *Machine) Must(args ...string) (output string) {
	m.t.Helper()
	code, output := m.Run(args...)
	if code != 0 {
		m.t.Fatalf("%v: exit %d\n%s", args, code, output)
	}
	return output
}

// Shell is Must for a line of shell.
func (m *Machine) Shell(script string) (output string) {
	m.t.Helper()
	return m.Must("sh", "-ec", script)
}

// Path is where this machine finds a file of that one.
func (m *Machine) Path(file string) string { return fmt.Sprintf("/proc/%d/root%s", m.init, file) }

// Write writes a file, and the folders that it needs.
func (m *Machine) Write(file string, mode os.FileMode, text string) {
	m.t.Helper()
	path := m.Path(file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask, and if it was there before
		m.t.Fatal(err)
	}
}

// Exists tells whether there is a file; a link that leads nowhere is one.
func (m *Machine) Exists(file string) bool {
	m.t.Helper()
	_, err := os.Lstat(m.Path(file))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.t.Fatal(err)
	}
	return err == nil
}

// Await returns when something is so. It looks again after twice the time that a look took: each one starts programs on
// the machine.
func (m *Machine) Await(what string, so func() bool) {
	m.t.Helper()
	late := time.After(patience)
	for began := time.Now(); !so(); began = time.Now() {
		select {
		case <-time.After(max(20*time.Millisecond, 2*time.Since(began))):
		case <-late:
			m.t.Fatalf("waited %v in vain until %s", patience, what)
		}
	}
}
