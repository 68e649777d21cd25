package sim_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/fedmesh/fedmesh/sim"
)

// TestTooLargeADump is refused before anything runs, be it the rows of all agents or the matrices of all iterations that are many.
func TestTooLargeADump(t *testing.T) {
	for want, change := range map[string]func(*sim.Experiment){
		"agents": func(e *sim.Experiment) { e.Agents, e.Participants, e.Data.Pool = 1_000_000, 5, 1000 },
		"rounds": func(e *sim.Experiment) {
			e.Agents, e.Rounds, e.Algorithm = 500, 1000, sim.FedDec
			e.Mixing.Graph, e.Mixing.Weights, e.Mixing.LinkUp = sim.Ring, "metropolis", 0.5
		},
	} {
		e := sim.Default()
		e.Runs, e.Dump = 1, t.TempDir()
		change(&e)
		var field *sim.FieldError
		if _, err := sim.Run(context.Background(), e, nil); !errors.As(err, &field) || field.Key != want {
			t.Errorf("want a complaint about %s, got %v", want, err)
		}
		if _, err := os.Stat(e.Dump + "/run-0000"); err == nil {
			t.Errorf("%s: a run is there", want)
		}
	}
}
