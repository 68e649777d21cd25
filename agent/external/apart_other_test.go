//go:build !unix

package external_test

import "syscall"

// apart is nothing: here there are no groups of processes.
var apart *syscall.SysProcAttr
