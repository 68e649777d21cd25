//go:build linux && vm

package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestClockJumps changes the clock of a machine that runs three coordinators, their store, a broker and an agent. The
// leader must not change, and rounds must continue. After the leader is killed, another coordinator must lead within 20
// s.
func TestClockJumps(t *testing.T) {
	p := processors[0]
	skipWithoutPrograms(t, p.qemu[0], "cpio", "go")
	dir := t.TempDir()
	bin, srv := filepath.Join(dir, "usr/local/bin"), filepath.Join(dir, "srv")
	if err := testkit.BuildInto(filepath.Join("..", "..", ".."), bin, "GOARCH="+p.name); err != nil {
		t.Fatal(err)
	}
	server, err := os.ReadFile(brokers.NATSServer(t))
	if err != nil {
		t.Fatal(err)
	}
	keys := "identity: {key_file: /srv/coordinator.key, agents_file: /srv/NAME.keys}\nstate_dir: /srv/NAME\n" +
		"cluster: {nats: [\"nats://127.0.0.1:4222\"], name: NAME, copies: 1}\nmetrics: {listen: \"\"}\n"
	agent := strings.NewReplacer("identity:\n", "state_dir: /srv/agent\nmetrics: {listen: \"\"}\n"+
		"identity:\n  key_file: /srv/agent.key\n").Replace(agentConfig)
	data := "x,y\n"
	for i := range 100 {
		data += fmt.Sprintf("%d,%d\n", i%7, 3*(i%7)+i%2)
	}
	if err := os.MkdirAll(srv, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{
		filepath.Join(bin, "nats-server"): string(server),
		filepath.Join(srv, "nats.conf"):   "listen: 127.0.0.1:4222\njetstream {store_dir: /srv/nats}\n",
		filepath.Join(srv, "coordinator.yaml.in"): keys + strings.NewReplacer("rounds: 3", "rounds: 0",
			"deadline: 30s", "pause: 200ms\n  deadline: 60s").Replace(coordinatorConfig),
		filepath.Join(srv, "agentd.yaml.in"): agent,
		filepath.Join(srv, "data.csv"):       data,
	} {
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil { //nolint:gosec // programs among them
			t.Fatal(err)
		}
	}
	atBoot(t, dir, "clock.sh")
	console := p.boot(t, dir)
	t.Logf("%s", told(console))
	if !strings.Contains(console, "TEST done") {
		t.Fatalf("the test did not come to its end:\n%s", console)
	}
	found := regexp.MustCompile(`TEST follows=([\d.]+)`).FindStringSubmatch(console)
	if found == nil {
		t.Fatal("who follows is not told")
	}
	if s, err := strconv.ParseFloat(found[1], 64); err != nil || s > 20 {
		t.Errorf("who follows opens a round %s s after the kill, want at most 20 (%v)", found[1], err)
	}
}
