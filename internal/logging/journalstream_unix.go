//go:build unix

package logging

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// IsJournalStream reports whether w is connected to journald, that is, whether $JOURNAL_STREAM contains the device and
// inode numbers of w (see systemd.exec(5)). It is not sufficient that the variable is set, because programs that are
// started in a terminal of a desktop session inherit the variable.
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
