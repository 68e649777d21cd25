//go:build !unix

package external_test

import "syscall"

// apart is nil, because this system has no process groups.
var apart *syscall.SysProcAttr
