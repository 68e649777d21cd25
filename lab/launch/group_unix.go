//go:build unix

package launch

import (
	"os/exec"
	"syscall"
)

// setOwnGroup makes the command run in its own process group, so that Ctrl-C in the terminal does not end it.
func setOwnGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills the process and all its children in the same process group. killGroup does nothing if they have
// ended.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
