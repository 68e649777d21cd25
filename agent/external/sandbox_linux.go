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

// sandbox is the control group of a program, below the agent's own, and its network: a namespace without any.
type sandbox struct {
	cgroupDir     string // its folder; empty = none
	cgroupDirFile *os.File
	blocksNetwork bool // no network
}

var noSandbox sandbox

// mostProcesses bounds the processes and threads of a program.
const mostProcesses = 256

// cgroupRoot is where the kernel shows control groups.
const cgroupRoot = "/sys/fs/cgroup"

// newSandbox makes one, or says why a program cannot be confined. The agent's group has to be delegated to it (systemd:
// Delegate=yes): it moves itself into a group below, since a group with processes hands no controllers down.
func newSandbox(cfg *Config) (sandbox, string) {
	own, err := ownCgroupDir()
	if err != nil {
		return noSandbox, err.Error()
	}
	base, err := delegateCgroupControllers(own)
	if err != nil {
		return noSandbox, "its control group is not delegated (systemd: Delegate=yes): " + err.Error()
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
		swapless := file == "memory.swap.max" && errors.Is(err, os.ErrNotExist) // the kernel has none
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

// ownCgroupDir is the folder of the agent's own control group.
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
	return "", errors.New("the system has no control groups of version 2")
}

// agentCgroupName is the name of the group into which the agent moves itself.
const agentCgroupName = "agent"

// delegateCgroupControllers makes the controllers of a group available below it, and returns the group that hands them
// down.
func delegateCgroupControllers(own string) (string, error) {
	if filepath.Base(own) == agentCgroupName { // the agent has moved before
		return filepath.Dir(own), nil
	}
	procs, err := os.ReadFile(filepath.Join(own, "cgroup.procs")) // where there are no groups of version 2, no file
	if err != nil {
		return "", err
	}
	if text := strings.TrimSpace(string(procs)); text != "" && text != strconv.Itoa(os.Getpid()) {
		return "", errors.New("it has other processes than this one")
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

// mayRunUnconfined says that a program which does not start in the cage may be tried without.
func (c sandbox) mayRunUnconfined() bool { return c.cgroupDir != "" }

// applyTo has a command start in the cage, in a group of processes of its own.
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

// killProgram ends all processes in the cage.
func (c sandbox) kill() {
	if c.cgroupDir != "" {
		_ = os.WriteFile(filepath.Join(c.cgroupDir, "cgroup.kill"), []byte("1"), 0) // before Linux 5.14 there is none
	}
}

// remove removes the cage, once its processes have ended.
func (c sandbox) remove() {
	if c.cgroupDirFile != nil {
		_ = c.cgroupDirFile.Close() // it was only read
	}
	if c.cgroupDir != "" {
		_ = os.Remove(c.cgroupDir) // a process that does not die keeps it
	}
}

// killAll ends a process and the others of its group.
func killAll(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it has ended if that fails
}
