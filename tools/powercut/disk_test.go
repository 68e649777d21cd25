package powercut

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// needsFuse skips a test on systems that cannot mount a file system.
func needsFuse(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("mounting takes /dev/fuse: %v", err)
	}
	_ = f.Close() // Close cannot fail, because no data was written.
	if _, err := exec.LookPath("fusermount3"); err != nil && os.Getuid() != 0 {
		t.Skipf("mounting takes root or fusermount3: %v", err)
	}
}

func mounted(t *testing.T, synced func(string, []byte)) *Disk {
	t.Helper()
	needsFuse(t)
	d, err := Mount(t.TempDir(), synced)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestCut checks that a simulated power failure discards all unsynced data and keeps all synced data.
func TestCut(t *testing.T) {
	syncs := map[string]string{}
	d := mounted(t, func(name string, content []byte) { syncs[name] = string(content) })
	path := func(name string) string { return filepath.Join(d.folder, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string, sync bool) {
		t.Helper()
		f, err := os.OpenFile(path(name), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		must(err)
		_, err = f.WriteString(text)
		must(err)
		if sync {
			must(f.Sync())
		}
		must(f.Close())
	}
	syncFolder := func(name string) {
		t.Helper()
		f, err := os.Open(path(name))
		must(err)
		must(f.Sync())
		must(f.Close())
	}
	write("kept", "old", true)
	write("moved", "m", true)
	write("removed", "r", true)
	must(os.Mkdir(path("folder"), 0o700))
	write("folder/deep", "d", true)
	syncFolder("folder")
	syncFolder(".")
	write("kept", "new, which was not synced", false)
	write("nameless", "its folder was not synced", true)
	must(os.Rename(path("moved"), path("elsewhere")))
	must(os.Remove(path("removed")))
	write("folder/young", "y", true)
	if got, err := os.ReadFile(path("kept")); err != nil || string(got) != "new, which was not synced" {
		t.Errorf("before the cut: %q, %v", got, err)
	}
	if _, err := os.Stat(path("moved")); err == nil {
		t.Error("a file that was renamed is there under its old name")
	}
	must(d.Cut())
	for name, want := range map[string]string{"kept": "old", "moved": "m", "removed": "r", "folder/deep": "d"} {
		if got, err := os.ReadFile(path(name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"nameless", "elsewhere", "folder/young"} {
		if _, err := os.Stat(path(name)); !os.IsNotExist(err) {
			t.Errorf("%s: %v, want it gone", name, err)
		}
	}
	if syncs["kept"] != "old" || syncs["young"] != "y" {
		t.Errorf("syncs %q", syncs)
	}
	write("kept", "newest", true)
	must(d.Cut())
	if got, err := os.ReadFile(path("kept")); err != nil || string(got) != "newest" {
		t.Errorf("after the second cut: %q, %v", got, err)
	}
}
