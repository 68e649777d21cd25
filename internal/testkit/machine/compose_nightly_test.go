//go:build linux && machine && nightly

package machine

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestServerCompose runs the commands of packaging/compose/README.md with podman. It enrols three devices: two
// containers of our image, and the add-on of Home Assistant. It builds our images in the same way as a release. The
// images of Mosquitto and Prometheus are built from Debian's programs. Grafana does not run.
func TestServerCompose(t *testing.T) {
	skipWithoutPrograms(t, "podman", "docker-compose", "runc", "openssl", "prometheus", "promtool", "unshare", "git",
		"python3")
	packaging, err := filepath.Abs(filepath.Join("..", "..", "..", "packaging"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	dist, err := images()
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"sample.csv", "station-1.csv", "station-2.csv", "station-3.csv"} {
		//nolint:gosec // a container reads it
		if err := os.WriteFile(filepath.Join(dir, name), []byte(measured(uint64(i))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	script := exec.Command("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash",
		"testdata/compose.sh")
	script.Env = append(os.Environ(), "DIR="+dir, "DIST="+dist, "ROOT="+debian(t, release+"-jq", "--include=jq"),
		"PACKAGING="+packaging)
	out, err := script.CombinedOutput()
	_, seen, done := strings.Cut(string(out), "TEST ")
	if err != nil || !done || !strings.HasSuffix(seen, "TEST done\n") {
		t.Fatalf("the script ends with %v:\n%s", err, out)
	}
	t.Log(seen)
}
