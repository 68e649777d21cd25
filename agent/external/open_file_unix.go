//go:build unix

package external

import (
	"io/fs"
	"os"
	"syscall"
)

// noFollow opens a file that is one, and waits for nobody at a pipe.
const noFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// ownedByUser reports whether a file is this user's: nobody else puts another in its place then.
func ownedByUser(info fs.FileInfo) bool {
	of, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(of.Uid) == os.Geteuid()
}
