//go:build unix

package external_test

import "syscall"

// apart makes a process leave the process group of its parent.
var apart = &syscall.SysProcAttr{Setsid: true}
