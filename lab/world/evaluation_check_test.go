package world

import (
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// TestRoundsDoNotWait checks that an evaluation of every model does not change the models, bit for bit, or the times of
// the rounds. This must hold even if no agent reports a result.
func TestRoundsDoNotWait(t *testing.T) {
	for _, method := range []Method{"", "gradients", "fedadam", "samples, int4", "top_k", "feddec, top_k"} {
		t.Run(string(method), func(t *testing.T) {
			t.Parallel()
			p := Plan{Seed: 11, Method: method, Agents: 6, Participants: 5, Quorum: 5, Rounds: 6, Standardize: true,
				Evaluates: 100}
			all := func(wire.Hello) bool { return true }
			without, began, n := evaluatedModels(t, p, all)
			if n != 1 {
				t.Fatalf("%d evaluations, want that of the last model", n)
			}
			p.Evaluates = 1
			for name, say := range map[string]func(h wire.Hello) bool{
				"all speak":     all,
				"nobody speaks": func(h wire.Hello) bool { return h.Evaluation.ModelVersion == 0 },
			} {
				with, at, n := evaluatedModels(t, p, say)
				// An evaluation waits for agents that do not report, and this delays the next evaluation.
				if n > p.Rounds || n < 2 || name == "all speak" && n != p.Rounds {
					t.Errorf("%s: %d evaluations of %d models", name, n, p.Rounds)
				}
				for i, m := range with {
					if m.Hash != without[i].Hash {
						t.Errorf("%s: model %d is another one", name, m.Version)
					}
				}
				for i := range at {
					if late := at[i] - began[i]; late > 2*time.Second || late < -2*time.Second {
						t.Errorf("%s: round %d begins after %s, and without evaluations after %s", name, i+1, at[i],
							began[i])
					}
				}
			}
		})
	}
}

// evaluatedModels runs a plan. It returns the models, the start times of the rounds and the number of evaluations. It
// drops each hello message for which say returns false.
func evaluatedModels(t *testing.T, p Plan, say func(h wire.Hello) bool) ([]aggregation.ModelReady, []time.Duration,
	int) {
	t.Helper()
	seen := &witness{}
	r := Run(p, Bugs{
		Configure: seen.watch,
		Say: func(_ int, m mqtt.Message) bool {
			e, err := wire.ParseEnvelope(m.Payload)
			if err != nil || e.Type != wire.TypeHello {
				return true
			}
			h, err := wire.DecodeHello(e.Body)
			return err != nil || say(h)
		},
	}, nil)
	if r.Failure != "" {
		t.Fatal(r.Failure)
	}
	if len(seen.models) < p.Rounds {
		t.Fatalf("%d models after %d rounds", len(seen.models), p.Rounds)
	}
	return seen.models, r.Opened, r.Evaluated
}
