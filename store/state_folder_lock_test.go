package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLockIsExclusive(t *testing.T) {
	dir := t.TempDir()
	l, err := LockStateFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = LockStateFolder(dir)
	if !errors.Is(err, ErrLocked) {
		t.Fatalf("second Lock: %v, want ErrLocked", err)
	}
	for _, want := range []string{dir, fmt.Sprintf("process %d", os.Getpid())} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %q", err, want)
		}
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	l, err = LockStateFolder(dir)
	if err != nil {
		t.Fatalf("Lock after Unlock: %v", err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestLockClearsTemporaryFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "models"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{tempPrefix + "1", "models/" + tempPrefix + "2", "models/model", "keep"} {
		mustWrite(t, filepath.Join(dir, name), nil)
	}
	l, err := LockStateFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"keep", "lock", "models"}) {
		t.Errorf("folder holds %v", got)
	}
	if got := names(t, filepath.Join(dir, "models")); !slices.Equal(got, []string{"model"}) {
		t.Errorf("models/ holds %v", got)
	}
}

func TestLockNeedsFolder(t *testing.T) {
	if _, err := LockStateFolder(filepath.Join(t.TempDir(), "typo")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want not exist", err)
	}
}
