package external

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// sandbox confines a program. It consists of a control group below the agent's own, and a network namespace without
// interfaces.
type sandbox struct {
	cgroupDir     string // path of the control group; empty if the sandbox has none
	cgroupDirFile *os.File
	blocksNetwork bool // true if the program runs without network access
}

var noSandbox sandbox

// mostProcesses is the maximum number of processes and threads of a program.
const mostProcesses = 256

// cgroupRoot is the mount point of the control groups.
const cgroupRoot = "/sys/fs/cgroup"

// newSandbox creates a sandbox in the agent's delegated control group (systemd: Delegate=yes), or returns the reason
// why a program cannot be confined. The agent moves into a child group, because a group with processes cannot enable
// controllers for its children.
func newSandbox(cfg *Config) (sandbox, string) {
	own, err := ownCgroupDir()
	if err != nil {
		return noSandbox, err.Error()
	}
	base, err := delegateCgroupControllers(own)
	if err != nil {
		return noSandbox, "the control group of agentd is not delegated (systemd: Delegate=yes): " + err.Error()
	}
	group, err := os.MkdirTemp(base, "trainer-")
	if err != nil {
		return noSandbox, err.Error()
	}
	c := sandbox{cgroupDir: group, blocksNetwork: !cfg.AllowsNetwork}
	limits := map[string]string{"pids.max": strconv.Itoa(mostProcesses)}
	if cfg.MaxMemoryBytes > 0 {
		limits["memory.max"], limits["memory.swap.max"] = strconv.FormatUint(cfg.MaxMemoryBytes, 10), "0"
	}
	for file, value := range limits {
		err := os.WriteFile(filepath.Join(group, file), []byte(value), 0)
		// Ignore the error if the kernel does not support swap limits.
		swapless := file == "memory.swap.max" && errors.Is(err, os.ErrNotExist)
		if err != nil && !swapless {
			c.remove()
			return noSandbox, fmt.Sprintf("%s: %v", file, err)
		}
	}
	if c.cgroupDirFile, err = os.Open(group); err != nil {
		c.remove()
		return noSandbox, err.Error()
	}
	return c, ""
}

// ownCgroupDir returns the folder of the control group in which the agent runs.
func ownCgroupDir() (string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range bytes.Lines(text) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "0::"); ok {
			return filepath.Join(cgroupRoot, path), nil
		}
	}
	return "", errors.New("the system does not support control groups version 2")
}

// agentCgroupName is the name of the child control group into which the agent moves.
const agentCgroupName = "agent"

// delegateCgroupControllers enables the resource controllers for the children of the agent's control group. It returns
// the folder of that group.
func delegateCgroupControllers(own string) (string, error) {
	if filepath.Base(own) == agentCgroupName { // The agent has already moved into the child group.
		return filepath.Dir(own), nil
	}
	procs, err := os.ReadFile(filepath.Join(own, "cgroup.procs")) // The file does not exist without cgroups version 2.
	if err != nil {
		return "", err
	}
	if text := strings.TrimSpace(string(procs)); text != "" && text != strconv.Itoa(os.Getpid()) {
		return "", errors.New("the control group of agentd contains other processes")
	}
	into := filepath.Join(own, agentCgroupName)
	if err := os.Mkdir(into, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	for _, step := range []struct{ path, text string }{
		{filepath.Join(into, "cgroup.procs"), strconv.Itoa(os.Getpid())},
		{filepath.Join(own, "cgroup.subtree_control"), "+memory +pids"},
	} {
		if err := os.WriteFile(step.path, []byte(step.text), 0); err != nil {
			return "", err
		}
	}
	return own, nil
}

// mayRunUnconfined reports whether the program may start without the sandbox if it fails to start inside.
func (c sandbox) mayRunUnconfined() bool { return c.cgroupDir != "" }

// applyTo configures a command to start in the sandbox, in its own process group.
func (c sandbox) applyTo(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if c.cgroupDirFile != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(c.cgroupDirFile.Fd())
	}
	if c.blocksNetwork {
		user, group := os.Getuid(), os.Getgid()
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: user, HostID: user, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: group, HostID: group, Size: 1}}
	}
}

// kill ends all processes in the sandbox.
func (c sandbox) kill() {
	if c.cgroupDir != "" {
		// Ignore the error: the file does not exist before Linux 5.14.
		_ = os.WriteFile(filepath.Join(c.cgroupDir, "cgroup.kill"), []byte("1"), 0)
	}
}

// remove removes the sandbox after its processes have ended.
func (c sandbox) remove() {
	if c.cgroupDirFile != nil {
		_ = c.cgroupDirFile.Close() // Ignore the error: the folder was only open for reading.
	}
	if c.cgroupDir != "" {
		_ = os.Remove(c.cgroupDir) // Ignore the error: removal fails while a process is still running.
	}
}

// killAll kills a process and all other members of its process group.
func killAll(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // Ignore the error: the call fails if the process has exited.
}
