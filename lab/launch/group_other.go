//go:build !unix

package launch

import "os/exec"

// setOwnGroup does nothing, because this operating system has no process groups.
func setOwnGroup(*exec.Cmd) {}

// killGroup kills the process. Children of the process are not killed on this operating system.
func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
