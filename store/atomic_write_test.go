package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestWriteFileReplaces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	for _, content := range []string{"first", "", "a longer second content"} {
		if err := LocalDisk.WriteFileDurably(path, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		if got := mustRead(t, path); string(got) != content {
			t.Errorf("content %q, want %q", got, content)
		}
	}
	if got := names(t, dir); !slices.Equal(got, []string{"state"}) {
		t.Errorf("folder holds %v, want only the file", got)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, want 0640", info.Mode().Perm())
	}
}

// TestWriteFileHeedsUmask checks that the umask applies to the mode, so that mode 0666 does not make a file writable
// for all users.
func TestWriteFileHeedsUmask(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "ours")
	if err := LocalDisk.WriteFileDurably(path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	want, err := os.Stat(plain)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.Stat(path)
	if err != nil || got.Mode() != want.Mode() {
		t.Errorf("mode %v, error %v; want that of os.WriteFile, %v", got.Mode(), err, want.Mode())
	}
}

func TestWriteFileFailsCleanly(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(folder, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	// fails, because a file cannot be renamed over a folder
	err := LocalDisk.WriteFileDurably(folder, []byte("x"), 0o600)
	if err == nil || !strings.Contains(err.Error(), folder) {
		t.Errorf("error %v, want one that names %s", err, folder)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"folder"}) {
		t.Errorf("folder holds %v: the temporary file was left over", got)
	}
	missing := filepath.Join(dir, "no", "file")
	err = LocalDisk.WriteFileDurably(missing, []byte("x"), 0o600)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "create the folder") {
		t.Errorf("error %v, want one that says to create the folder", err)
	}
}

func TestMakeDirNeedsParent(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if err := LocalDisk.MakeDir(filepath.Join(dir, "spool")); err != nil {
			t.Fatal(err)
		}
	}
	if err := LocalDisk.MakeDir(filepath.Join(dir, "typo", "spool")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want not exist", err)
	}
}
