//go:build unix

package external_test

import "syscall"

// apart has a process leave the group of its parent.
var apart = &syscall.SysProcAttr{Setsid: true}
