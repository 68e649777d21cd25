//go:build !unix

package launch

import "os/exec"

// setOwnGroup does nothing: only Unix has process groups.
func setOwnGroup(*exec.Cmd) {}

// killGroup kills the program only.
func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
