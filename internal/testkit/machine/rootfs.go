//go:build linux

package machine

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Settings of the machines: release is the Debian release, and packages lists the installed packages, which are
// systemd, a broker and a few tools.
const release = "bookworm"

var packages = []string{"systemd-sysv", "dbus", "udev", "libpam-systemd", "adduser", "mosquitto"}

// skipWithoutPrograms skips the test if a required program is not installed. In CI it fails the test instead.
func skipWithoutPrograms(t testing.TB, programs ...string) {
	t.Helper()
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	for _, program := range append(programs, "mmdebstrap") {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	if missing == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("no machine can be booted without %s, and CI needs it (tools/deps.sh)", strings.Join(missing, ", "))
	}
	t.Skipf("no machine can be booted without %s", strings.Join(missing, ", "))
}

// rootfs returns the folder with Debian's root file system, which callers must not modify. The first call on a host
// builds the file system and takes about 30 seconds.
func rootfs(t testing.TB) string {
	t.Helper()
	return debian(t, release, "--include=rpm")
}

// debian builds or finds a cached Debian root file system called name and returns its folder. more contains additional
// arguments of mmdebstrap.
func debian(t testing.TB, name string, more ...string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"--quiet", "--variant=minbase", "--include=" + strings.Join(packages, ",")}, more...)
	dir := filepath.Join(cache, "fedmesh",
		fmt.Sprintf("%s-%.4x", name, sha256.Sum256([]byte(strings.Join(args, "\n")))))
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	unlock := lock(t, dir+".lock")
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	building := dir + ".new"
	if err := os.RemoveAll(building); err != nil { // Remove the remains of an interrupted build.
		t.Fatal(err)
	}
	if out, err := exec.Command("mmdebstrap", append(args, release, building)...).CombinedOutput(); err != nil {
		t.Fatalf("mmdebstrap: %v\n%s", err, out)
	}
	if err := os.Rename(building, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// lock blocks until it holds the lock on a file. The file lock prevents test processes of other packages from building
// the same file system concurrently.
func lock(t testing.TB, path string) (unlock func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() { _ = f.Close() } // Closing the file releases the lock.
}
