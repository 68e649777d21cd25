//go:build unix

package join

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/store"
)

// linking is a file system on which an attacker replaces each new file by a symbolic link.
type linking struct {
	store.FS
	to string
}

func (l linking) Rename(from, to string) error {
	if err := l.FS.Rename(from, to); err != nil || !strings.HasSuffix(to, ".new") {
		return err
	}
	if err := os.Remove(to); err != nil {
		return err
	}
	return os.Symlink(l.to, to)
}

// TestOwnerFollowsNoLink checks that the owner of a folder cannot make root change the owner of a file outside the
// folder.
func TestOwnerFollowsNoLink(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o, disk := fileOwner{0o644, 12345, 12345}, store.Disk{FS: linking{store.LocalDisk.FS, other}}
	if err := o.write(disk, filepath.Join(dir, "x"), nil, 0o644); err == nil {
		t.Error("a link was taken for the file")
	}
	info, err := os.Stat(other)
	if err != nil {
		t.Fatal(err)
	}
	if s := info.Sys().(*syscall.Stat_t); s.Uid == 12345 || info.Mode().Perm() != 0o600 {
		t.Errorf("another file belongs to %d now, with mode %v", s.Uid, info.Mode())
	}
}

// TestOwnerKeepsMode checks that the umask does not restrict the mode of an existing file.
func TestOwnerKeepsMode(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	path := filepath.Join(t.TempDir(), "agentd.yaml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	o := ownerOf(path)
	if err := o.write(store.LocalDisk, path, []byte("x"), o.mode); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
}
