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

// release and packages are what the machines run: the least Debian with
// systemd, and a broker for the programs to meet at. Machines in containers have rpm, too.
const release = "bookworm"

var packages = []string{"systemd-sysv", "dbus", "udev", "libpam-systemd", "adduser", "mosquitto"}

// skipWithoutPrograms skips a test on a machine that cannot boot another one with these
// programs, but never when CI is true.
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

// rootfs returns the folder with Debian's file system, which nobody may write.
// The first call on a machine builds it, which takes half a minute.
func rootfs(t testing.TB) string {
	t.Helper()
	return debian(t, release, "--include=rpm")
}

// debian is rootfs for a Debian that differs, by more arguments of mmdebstrap.
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
	if err := os.RemoveAll(building); err != nil { // of a build that was cut short
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

// lock waits for the file's lock, which also keeps the tests of other packages
// from building at the same time.
func lock(t testing.TB, path string) (unlock func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() { _ = f.Close() } // which unlocks
}
