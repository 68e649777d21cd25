//go:build !unix

package testbed

import "os/exec"

// ownGroup does nothing: there is no testbed where Debian's packages are not.
func ownGroup(*exec.Cmd) {}
