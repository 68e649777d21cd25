package store

import (
	"io/fs"
	"time"
)

// Stamp tells one content of a file from another.
type Stamp struct{ Size, Written, Changed int64 }

// StampOf returns the stamp of a file.
func StampOf(info fs.FileInfo) Stamp {
	return Stamp{Size: info.Size(), Written: info.ModTime().UnixNano(), Changed: changed(info)}
}

// Old reports whether a later change of the file has another stamp: file systems count time in steps of up to 2 s.
func (s Stamp) Old(now time.Time) bool {
	return now.UnixNano()-max(s.Written, s.Changed) > int64(2*time.Second)
}
