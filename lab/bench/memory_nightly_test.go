//go:build nightly

package bench

import (
	"path/filepath"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestCoordinatorMemory runs a coordinator process with a hundred agents and a model of 4 MB. It checks that the memory
// does not grow with the number of updates in a round.
func TestCoordinatorMemory(t *testing.T) {
	brokers.OpenMosquitto(t) // Skip the test if Mosquitto is not installed.
	programs := t.TempDir()
	if err := testkit.BuildInto(filepath.Join("..", ".."), programs); err != nil {
		t.Fatal(err)
	}
	const model, most = 4_000_000, 30_000_000
	o := Runs{Reps: 1, Rounds: window, Dir: t.TempDir(), Memory: t.TempDir(), Programs: programs}
	r, err := o.runOurs(t.Context(), &match{agents: 100, drawn: 20, dim: model / 4, fleet: true}, o.Memory)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f MB at most, %.1f MB (PSS) at the end", float64(r.leaderMost)/1e6, float64(r.leaderBytes)/1e6)
	if r.leaderMost > most+6*model {
		t.Errorf("the coordinator had %.1f MB resident, want 30 MB and 6 models at most", float64(r.leaderMost)/1e6)
	}
}
