package sim_test

import (
	"context"
	"errors"
	"os"
	"reflect"
	"testing"

	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/spec"
)

// TestDumpOverAnother checks that a replay uses only the last dump written to a folder.
func TestDumpOverAnother(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"feddec, failing links, metropolis", "drawn steps, stragglers, noise", "feddec",
		"stored rows, batches"} {
		e := dumpedExperiment(dumped()[name])
		e.Runs, e.Dump = 1, dir
		if e.Algorithm == spec.FedDec && name == "feddec" {
			e.Mixing.Graph = sim.NoGraph
		}
		want := run(t, e)
		again, err := sim.LoadDump(dir)
		if err != nil {
			t.Fatal(err)
		}
		got, err := sim.Run(context.Background(), again, nil)
		if err != nil || !reflect.DeepEqual(got.Final, want.Final) || (got.Network == nil) != (want.Network == nil) {
			t.Errorf("%s: after another dump %v, %v, want %v", name, got, err, want.Final)
		}
	}
}

// TestTooLargeADump checks that the simulator refuses a dump that would be too large, before the run starts. The dump
// may be too large because of many agents or many iterations.
func TestTooLargeADump(t *testing.T) {
	for want, change := range map[string]func(*sim.Experiment){
		"agents": func(e *sim.Experiment) { e.Agents, e.Participants.Count, e.Data.Pool = 1_000_000, 5, 1000 },
		"rounds": func(e *sim.Experiment) {
			e.Agents, e.Rounds, e.Algorithm = 500, 1000, spec.FedDec
			e.Mixing.Graph, e.Mixing.Weights, e.Mixing.LinkUp = sim.Ring, "metropolis", 0.5
		},
	} {
		e := sim.Default()
		e.Runs, e.Dump = 1, t.TempDir()
		change(&e)
		var field *spec.FieldError
		if _, err := sim.Run(context.Background(), e, nil); !errors.As(err, &field) || field.Key != want {
			t.Errorf("want a complaint about %s, got %v", want, err)
		}
		if _, err := os.Stat(e.Dump + "/run-0000"); err == nil {
			t.Errorf("%s: a run is there", want)
		}
	}
}
