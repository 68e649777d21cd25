//go:build unix

package logging

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// IsJournalStream reports whether w is connected to journald, that is, whether $JOURNAL_STREAM contains its device and
// inode (systemd.exec(5)). The variable alone is not sufficient: programs started from a desktop's terminal inherit it.
func IsJournalStream(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil {
		return false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && os.Getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", s.Dev, s.Ino)
}
