//go:build !linux

package store

import "io/fs"

// inodeChangeTime is known on Linux only.
func inodeChangeTime(fs.FileInfo) int64 { return 0 }
