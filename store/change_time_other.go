//go:build !linux

package store

import "io/fs"

// inodeChangeTime returns 0, because the change time is only available on Linux.
func inodeChangeTime(fs.FileInfo) int64 { return 0 }
