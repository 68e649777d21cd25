//go:build unix

package external

import "syscall"

// noFollow opens a file that is one, and waits for nobody at a pipe.
const noFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
