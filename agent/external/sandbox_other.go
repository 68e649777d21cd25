//go:build !linux

package external

import "os/exec"

// sandbox is empty, because this system does not support confinement.
type sandbox struct{}

var noSandbox sandbox

func newSandbox(*Config) (sandbox, string) {
	return noSandbox, "this system does not support control groups"
}

func (sandbox) mayRunUnconfined() bool { return false }
func (sandbox) applyTo(*exec.Cmd)      {}
func (sandbox) kill()                  {}
func (sandbox) remove()                {}

func killAll(cmd *exec.Cmd) { _ = cmd.Process.Kill() } // Ignore the error: killing fails if the process has exited.
