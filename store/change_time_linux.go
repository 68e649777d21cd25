package store

import (
	"io/fs"
	"syscall"
)

// inodeChangeTime returns the time of the last change of the file's content, name or mode, in Unix nanoseconds. The
// kernel sets it, so a copy that preserves the modification time still has a different change time.
func inodeChangeTime(info fs.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ctim.Nano()
	}
	return 0
}
