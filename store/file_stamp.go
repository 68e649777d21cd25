package store

import (
	"io/fs"
	"time"
)

// FileStamp contains the size and times of a file, to detect that its content has changed.
type FileStamp struct{ Size, ModifiedAt, ChangedAt int64 }

// FileStampOf returns the stamp of the file that info describes.
func FileStampOf(info fs.FileInfo) FileStamp {
	return FileStamp{Size: info.Size(), ModifiedAt: info.ModTime().UnixNano(), ChangedAt: inodeChangeTime(info)}
}

// IsConclusive reports whether any change of the file after now would change the stamp. Recent stamps are not
// conclusive, because some file systems store times with a resolution of 2 s.
func (s FileStamp) IsConclusive(now time.Time) bool {
	return now.UnixNano()-max(s.ModifiedAt, s.ChangedAt) > int64(2*time.Second)
}
