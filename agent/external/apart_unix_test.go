//go:build unix

package external_test

import "syscall"

// apart contains process attributes that start a process in its own process group.
var apart = &syscall.SysProcAttr{Setsid: true}
