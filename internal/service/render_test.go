package service

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/packaging/systemd"
)

var update = flag.Bool("update", false, "write testdata")

// TestRender compares the rendered service files with golden files. The golden files for systemd are the units in
// packaging/systemd.
func TestRender(t *testing.T) {
	plain, other := systemd.Agent(), systemd.Coordinator()
	other.Executable, other.Config, other.StateDir, other.User = "/opt/fl/coordinator", "/srv/fl.yaml", "/srv/state",
		"fl"
	for name, u := range map[string]systemd.Unit{"agentd": plain, "coordinator": other} {
		for _, on := range slices.Sorted(maps.Keys(platformByName)) {
			if on == systemdPlatform {
				continue
			}
			text, err := platformByName[on].renderServiceFile(u)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+"."+on)
			if *update {
				if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(golden); err != nil || string(want) != text {
				t.Errorf("%s: %v; want\n%s\ngot\n%s\n(go test -update writes it)", golden, err, want, text)
			}
		}
	}
}
