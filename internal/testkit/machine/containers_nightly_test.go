//go:build linux && machine && nightly

package machine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/packaging/cluster"
)

// images builds the container images of both programs once, in the same way as a release, and returns their folder.
var images = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("bash", "-ec", `
cd ../../..
git clone --quiet --shared . "$1/images-src" # the go command reads the version of clones only, not of work trees
git diff --binary HEAD | (cd "$1/images-src" && git apply --allow-empty)
go -C tools/package run . -root "$1/images-src" -out "$1/images" -program agentd,coordinator -arch "$2" -kind oci`,
		"bash", string(programs), runtime.GOARCH).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("making images: %w\n%s", err, out)
	}
	return filepath.Join(string(programs), "images"), nil
})

// TestContainers runs the NATS servers and the coordinators that we ship in containers. It uses our image, and an image
// of nats-server that it builds. It kills the leading coordinator and checks that another coordinator takes over.
func TestContainers(t *testing.T) {
	skipWithoutPrograms(t, "podman", "docker-compose", "runc", "openssl", "mosquitto", "unshare")
	shipped, err := filepath.Abs(filepath.Join("..", "..", "..", "packaging", "cluster"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	dist, err := images()
	if err != nil {
		t.Fatal(err)
	}
	lead := strings.NewReplacer("federation: air", "federation: plant_7", "127.0.0.1", "host.containers.internal",
		"rounds: 3", "rounds: 0", "deadline: 30s", "pause: 200ms\n  deadline: 60s").Replace(coordinatorConfig)
	readme, err := os.ReadFile(filepath.Join(shipped, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, keys, found := strings.Cut(string(readme), "   ```yaml\n")
	keys, _, closed := strings.Cut(keys, "   ```")
	if len(cluster.Compose) == 0 {
		t.Fatal("compose.yml is empty")
	}
	if !found || !closed {
		t.Fatal("the README does not say what goes into coordinator.yaml")
	}
	files := map[string]string{
		"coordinator.yaml": lead + strings.ReplaceAll("\n"+keys, "\n   ", "\n"),
		"agentd.yaml": strings.NewReplacer("federation: air", "federation: plant_7", "identity:\n",
			"state_dir: "+dir+"/agent\nmetrics: {listen: \"\"}\nidentity:\n  key_file: "+dir+"/agent.key\n",
			"/srv/data.csv", dir+"/data.csv").Replace(agentConfig),
		"data.csv":       "x,y\n" + strings.Repeat("1,3\n2,7\n3,9\n", 30),
		"mosquitto.conf": "listener 1883 0.0.0.0\nallow_anonymous true\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // no secrets
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o755); err != nil { //nolint:gosec // another user reads it
		t.Fatal(err)
	}
	script := exec.Command("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash",
		"testdata/containers.sh")
	script.Env = append(os.Environ(), "DIR="+dir, "DIST="+dist, "SHIPPED="+shipped, "BIN="+string(programs),
		"NATS="+brokers.NATSServer(t))
	out, err := script.CombinedOutput()
	_, seen, done := strings.Cut(string(out), "TEST ")
	if err != nil || !done || !strings.HasSuffix(seen, "TEST done\n") {
		t.Fatalf("the script ends with %v:\n%s", err, out)
	}
	t.Log(seen)
}
