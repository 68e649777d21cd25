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

// patience is the timeout of each wait for the machine.
const patience = time.Minute

// DropDir is the mount point, inside the machine, of the folder that was passed to Boot.
const DropDir = "/drop"

// Machine is a running Debian system in a container. Its methods fail the test if an operation fails.
type Machine struct {
	t    testing.TB
	init int // process id, on the host, of the systemd process (PID 1) of the machine
}

var booted atomic.Int64

// Boot boots a machine and mounts the host folder drop read-only at DropDir. The machine is stopped at the end of the
// test.
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
	// Make the kernel kill the container when the test process dies, for example after a timeout.
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

// logDiagnostics writes the machine's systemd journal to the test log. If the journal is empty, it writes the console
// output instead.
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

// powerOff kills the container without a shutdown. It ignores errors, because it is called when the test has ended.
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

// childNamed returns the process id of the child process of parent that runs the given program. childNamed returns 0 if
// no such child exists.
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

// command returns a command that runs inside the machine as root. The environment of the command contains only PATH.
func (m *Machine) command(args ...string) *exec.Cmd {
	enter := []string{
		fmt.Sprint("--target=", m.init), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd",
		"env", "--ignore-environment", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	}
	return exec.Command("nsenter", append(enter, args...)...)
}

// Run runs a command inside the machine as root. It returns the exit code and the combined stdout and stderr without
// surrounding white space.
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

// Must runs a command inside the machine like Run, and fails the test if the exit code is not 0.
func (m *Machine) Must(args ...string) (output string) {
	m.t.Helper()
	code, output := m.Run(args...)
	if code != 0 {
		m.t.Fatalf("%v: exit %d\n%s", args, code, output)
	}
	return output
}

// Shell runs a shell script inside the machine, and fails the test if the exit code is not 0.
func (m *Machine) Shell(script string) (output string) {
	m.t.Helper()
	return m.Must("sh", "-ec", script)
}

// Path returns the host path of a file inside the machine.
func (m *Machine) Path(file string) string { return fmt.Sprintf("/proc/%d/root%s", m.init, file) }

// Write writes a file inside the machine and creates missing parent folders.
func (m *Machine) Write(file string, mode os.FileMode, text string) {
	m.t.Helper()
	path := m.Path(file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		m.t.Fatal(err)
	}
	// Set the mode explicitly, because WriteFile applies the umask and keeps the mode of an existing file.
	if err := os.Chmod(path, mode); err != nil {
		m.t.Fatal(err)
	}
}

// Exists reports whether a path exists inside the machine. For a symbolic link whose target is missing it returns true.
func (m *Machine) Exists(file string) bool {
	m.t.Helper()
	_, err := os.Lstat(m.Path(file))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.t.Fatal(err)
	}
	return err == nil
}

// Await polls the condition so until it is true, and fails the test after a timeout. Between two polls it waits twice
// as long as the last poll took.
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
