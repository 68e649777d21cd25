package world_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/lab/world"
)

// configured returns a deliberate bug: the coordinator uses a changed configuration.
func configured(change func(cfg *coordinator.Config)) world.Bugs {
	return world.Bugs{Configure: change}
}

// TestThreeSyncs checks that a round waits for three disk syncs in sequence, and that a statistics round waits for
// four. If each sync takes longer by a given time, the round must take longer by this time per sync.
func TestThreeSyncs(t *testing.T) {
	const (
		slow = 500 * time.Millisecond
		made = 3 // number of folder syncs for the first update, model and task file
	)
	// The function rounds returns the duration of the first round, and the median duration of the other rounds.
	rounds := func(p world.Plan, syncs time.Duration) (first, later time.Duration) {
		p.SyncTime = syncs
		r := world.Run(p, configured(func(cfg *coordinator.Config) {
			cfg.Round.PauseBetweenRounds, cfg.Round.RoundTimeout = 0, time.Hour
		}), nil)
		if r.Failure != "" {
			t.Fatal(r.Failure)
		}
		var took []time.Duration
		for i, at := range r.Opened[1:] {
			took = append(took, at-r.Opened[i])
		}
		t.Logf("%q: rounds take %v", p.Method, took)
		others := slices.Sorted(slices.Values(took[1:]))
		return took[0], others[len(others)/2]
	}
	for _, method := range []world.Method{"", "gradients", "refuse_above, fedyogi", "feddec"} {
		p := world.Plan{Seed: 3, Method: method, Agents: 4, Participants: 3, Quorum: 3, Rounds: 10, Standardize: true}
		fastFirst, fast := rounds(p, time.Microsecond)
		slowFirst, slower := rounds(p, slow)
		if n := float64(slower-fast) / float64(slow); math.Abs(n-3) > 0.3 {
			t.Errorf("%q: %.2f syncs in sequence a round, want 3", method, n)
		}
		if n := float64(slowFirst-fastFirst) / float64(slow); math.Abs(n-4-made) > 0.3 {
			t.Errorf("%q: %.2f syncs in sequence in the statistics round, want 4, and %d for new files", method, n,
				made)
		}
	}
}
