package rows

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/store"
)

// TestRoomThatWasGivenBack checks that the free disk space is checked again after rows were removed, because other
// programs may have used the space.
func TestRoomThatWasGivenBack(t *testing.T) {
	f, err := newRowFile(t.TempDir(), 1, false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.File.Close()
	if _, known := store.FreeDiskBytes(f.Folder); !known {
		t.Skip("this system does not tell the room on a disk")
	}
	put := func(rows int) error {
		return errors.Join(f.addRows(make([]float32, rows), make([]float32, rows), nil), f.flush())
	}
	if err := put(1000); err != nil {
		t.Fatal(err)
	}
	f.truncate(600)
	f.MinFreeDisk = 1 << 60 // other programs have used the space
	if err := put(400); err == nil || !strings.Contains(err.Error(), "must stay free") || f.writtenRowCount != 600 {
		t.Errorf("%d rows, error %v", f.writtenRowCount, err)
	}
	f.truncate(600)
	f.MinFreeDisk = MinFreeDiskBytes
	if err := put(400); err != nil || f.writtenRowCount != 1000 {
		t.Errorf("with room: %d rows, error %v", f.writtenRowCount, err)
	}
}

// TestLeftBehindRows checks that the row file of a killed process is removed.
func TestLeftBehindRows(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"rows-12.tmp", "boot"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := newRowFile(dir, 2, false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.File.Close()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "boot" {
		t.Errorf("%v, %v", left, err)
	}
}
