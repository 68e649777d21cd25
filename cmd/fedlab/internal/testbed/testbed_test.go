package testbed

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/fedmesh/fedmesh/internal/testkit"
)

// TestCheck runs a small testbed with certificates until all that is watched
// has data: every target, every panel, every alert.
func TestCheck(t *testing.T) {
	if testing.Short() {
		t.Skip("a testbed is processes")
	}
	for _, name := range []string{"mosquitto", "prometheus"} {
		if _, err := program(name, name); err != nil {
			t.Skip(err)
		}
	}
	bin := t.TempDir()
	if err := testkit.BuildInto("../../../..", bin); err != nil {
		t.Fatal(err)
	}
	o := Options{Dir: filepath.Join(t.TempDir(), "bed"), Bin: bin, Agents: 6, TLS: true, Limit: 5 * time.Minute,
		Stdout: t.Output()}
	if err := Check(t.Context(), o); err != nil {
		t.Error(err)
	}
}

// TestCompose holds compose.yml against its form, as far as that goes without
// Docker: what it mounts from here exists, and it asks for nothing that
// compose.sh does not set.
func TestCompose(t *testing.T) {
	const dir = "../../../../packaging/testbed/"
	text, err := os.ReadFile(dir + "compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Image, User, Restart string
			Init                 bool
			NetworkMode          string `yaml:"network_mode"`
			Command              any
			Volumes, Ports       []string
			DependsOn            []string `yaml:"depends_on"`
			Environment          map[string]string
		}
	}
	if err := yaml.UnmarshalWithOptions(text, &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"network", "mosquitto", "coordinator", "agents", "prometheus", "grafana"} {
		if file.Services[name].Image == "" {
			t.Errorf("no service %s", name)
		}
	}
	for _, volume := range file.Services["grafana"].Volumes {
		here, _, _ := strings.Cut(volume, ":")
		if _, err := os.Stat(dir + here); err != nil {
			t.Error(err)
		}
	}
	script, err := os.ReadFile(dir + "compose.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`[^$]\$\{(\w+)\}`).FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(string(script), m[1]+"=$") {
			t.Errorf("compose.sh does not set %s", m[1])
		}
	}
}
