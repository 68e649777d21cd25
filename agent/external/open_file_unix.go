//go:build unix

package external

import (
	"io/fs"
	"os"
	"syscall"
)

// noFollow contains open flags that reject a symbolic link and do not block on a pipe.
const noFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// ownedByUser reports whether a file belongs to this user, so that other users cannot replace it.
func ownedByUser(info fs.FileInfo) bool {
	of, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(of.Uid) == os.Geteuid()
}
