package store

import (
	"io/fs"
	"time"
)

// FileStamp tells one content of a file from another.
type FileStamp struct{ Size, ModifiedAt, ChangedAt int64 }

// FileStampOf returns the stamp of a file.
func FileStampOf(info fs.FileInfo) FileStamp {
	return FileStamp{Size: info.Size(), ModifiedAt: info.ModTime().UnixNano(), ChangedAt: inodeChangeTime(info)}
}

// IsConclusive reports whether a later change of the file has another stamp: file systems count time in steps of up to
// 2 s.
func (s FileStamp) IsConclusive(now time.Time) bool {
	return now.UnixNano()-max(s.ModifiedAt, s.ChangedAt) > int64(2*time.Second)
}
