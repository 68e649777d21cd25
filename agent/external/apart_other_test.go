//go:build !unix

package external_test

import "syscall"

// apart contains no process attributes, because this system has no process groups.
var apart *syscall.SysProcAttr
