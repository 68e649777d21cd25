//go:build unix

package logging_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/logging"
)

func TestToJournal(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "stream"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var s syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &s); err != nil {
		t.Fatal(err)
	}
	for stream, want := range map[string]bool{"": false, "8:1": false, fmt.Sprintf("%d:%d", s.Dev, s.Ino): true} {
		t.Setenv("JOURNAL_STREAM", stream)
		if got := logging.IsJournalStream(f); got != want {
			t.Errorf("JOURNAL_STREAM=%s: %v, want %v", stream, got, want)
		}
		if logging.IsJournalStream(new(bytes.Buffer)) {
			t.Errorf("JOURNAL_STREAM=%s: memory is taken for the journal", stream)
		}
	}
}
