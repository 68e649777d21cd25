package store

import (
	"io/fs"
	"syscall"
)

// inodeChangeTime is when the file's content, name or mode was changed, by the kernel's clock, in nanoseconds of Unix
// time: a copy that keeps the time of its original has another.
func inodeChangeTime(info fs.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ctim.Nano()
	}
	return 0
}
