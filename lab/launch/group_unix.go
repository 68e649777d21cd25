//go:build unix

package launch

import (
	"os/exec"
	"syscall"
)

// setOwnGroup gives a program its own process group, so that it does not receive the signals of the terminal.
func setOwnGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills a program and its children.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // they may have ended
