//go:build !unix

package testbed

import "os/exec"

// ownGroup does nothing: only Unix has process groups.
func ownGroup(*exec.Cmd) {}
