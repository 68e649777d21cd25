//go:build linux && machine

package machine

import (
	"os"
	"path/filepath"
	"testing"
)

// TestBoot checks the properties of a machine on which the other tests rely.
func TestBoot(t *testing.T) {
	drop := t.TempDir()
	if err := os.WriteFile(filepath.Join(drop, "file"), []byte("from outside\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := Boot(t, drop)
	if got := m.Must("cat", DropDir+"/file"); got != "from outside" {
		t.Errorf("the machine reads %q", got)
	}
	if code, _ := m.Run("touch", DropDir+"/other"); code == 0 {
		t.Error("the machine may write outside")
	}
	m.Write("/etc/fedmesh/test", 0o640, "text")
	if got := m.Shell("stat -c %a:%U /etc/fedmesh/test; cat /etc/fedmesh/test"); got != "640:root\ntext" {
		t.Errorf("a file that was written is %q", got)
	}
	if got := m.Must("systemctl", "is-active", "mosquitto"); got != "active" {
		t.Errorf("the broker is %s", got)
	}
	if !m.Exists("/etc/fedmesh/test") || m.Exists("/etc/fedmesh/other") {
		t.Error("which files are there is told wrongly")
	}
	// Another machine must not see files that the first machine has written.
	if other := Boot(t, drop); other.Exists("/etc/fedmesh/test") {
		t.Error("what a machine writes outlives it")
	}
}
