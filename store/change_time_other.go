//go:build !linux

package store

import "io/fs"

// changeTime is known on Linux only.
func changeTime(fs.FileInfo) int64 { return 0 }
