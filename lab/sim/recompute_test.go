package sim_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/spec"
)

// TestRecompute recomputes the results of dumps in numpy, using only the arrays in the dumps.
func TestRecompute(t *testing.T) {
	python := testkit.NumpyPython(t)
	tried := 0
	for name, change := range dumped() {
		e := dumpedExperiment(change)
		if strings.Contains(name, "network") || e.Exchange == spec.ExchangeGradient || e.Precision == sim.Float32 {
			continue // the script does not support this case
		}
		tried++
		t.Run(name, func(t *testing.T) {
			e.Dump = t.TempDir()
			run(t, e)
			out, err := exec.Command(python, "testdata/recompute.py", filepath.Join(e.Dump, "experiment.json"),
				filepath.Join(e.Dump, "run-0001")).CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	if tried < 5 {
		t.Errorf("%d dumps", tried)
	}
}

// TestLoadWithoutDraws loads dumps from which the draws were removed, and checks that the same seed gives the same
// draws.
func TestLoadWithoutDraws(t *testing.T) {
	for _, name := range []string{"one run", "stored rows, batches", "the bilinear network, stragglers, weights",
		"feddec, all links up",
		"feddec, failing links, metropolis"} {
		e := dumpedExperiment(dumped()[name])
		e.Runs, e.Dump = 1, t.TempDir()
		want := run(t, e)
		away := []string{"participants", "steps", "scale", "batch", "sample_rows", "sample_x", "sample_y", "noise",
			"final"}
		if e.Algorithm == spec.FedDec {
			away = append(away, "W") // graph.json contains the weights, too
		}
		for _, array := range away {
			if err := os.Remove(filepath.Join(e.Dump, "run-0000", array+".npy")); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
		again, err := sim.LoadDump(e.Dump)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := run(t, again); !reflect.DeepEqual(got.Final, want.Final) {
			t.Errorf("%s: the data alone give %v, with the draws it was %v", name, got.Final, want.Final)
		}
	}
}

// TestBadInstances checks that the simulator refuses dumps that are incomplete or inconsistent.
func TestBadInstances(t *testing.T) {
	for want, spoil := range map[string]func(t *testing.T, dir string){
		"neither draws": func(t *testing.T, dir string) {
			for _, array := range []string{"participants", "steps", "x", "y", "rows"} {
				must(t, os.Remove(filepath.Join(dir, array+".npy")))
			}
		},
		"which requires draws": func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, "participants.npy")))
			must(t, os.Remove(filepath.Join(dir, "steps.npy")))
			array(t, dir, "W", []int{11, 2, 2}, make44()...)
		},
		"graph.json has no edge between 0 and 1": func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "graph.json"),
				[]byte(`{"nodes": [{"id": "0"}, {"id": "1"}], "edges": []}`), 0o600))
		},
		"has 1 nodes, but there are 2 agents": func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "graph.json"), []byte(`{"nodes": [{"id": "0"}], "edges": []}`),
				0o600))
		},
		"matrix 0 of W.npy is not symmetric": func(t *testing.T,
			dir string) {
			array(t, dir, "W", []int{2, 2}, 0.5, 0.5, 0.25, 0.75)
		},
		"matrix 0 of W.npy is not doubly stochastic": func(t *testing.T,
			dir string) {
			array(t, dir, "W", []int{2, 2}, 0.5, 0.25, 0.25, 0.75)
		},
		"participants.npy has no participants in round 7": func(t *testing.T,
			dir string) {
			array(t, dir, "participants", []int{1, 3}, 3, 0, 1)
		},
		"in iteration 4, but the server does not average in it: mixing.server_every is 4": func(t *testing.T,
			dir string) {
			array(t, dir, "participants", []int{2, 3}, 3, 0, 1, 4, 0, 1)
		},
		"W.npy does not have a matrix for each of the 11 iterations": func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "..", "experiment.json"),
				[]byte(`{"algorithm": "feddec", "rounds": 12, "mixing": {"server_every": 4, "link_up": 0.5}}`), 0o600))
		},
		"W.npy: has shape [4]": func(t *testing.T, dir string) { array(t, dir, "W", []int{4}, 0.5, 0.5, 0.5, 0.5) },
	} {
		e := dumpedExperiment(dumped()["feddec, all links up"])
		e.Runs, e.Agents, e.Participants.Count, e.Dump = 1, 2, 1, t.TempDir()
		run(t, e)
		spoil(t, filepath.Join(e.Dump, "run-0000"))
		again, err := sim.LoadDump(e.Dump)
		if err == nil {
			err = again.Check()
		}
		if err == nil {
			_, err = sim.Run(context.Background(), again, nil)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

// make44 returns eleven mixing matrices of two agents.
func make44() []float64 {
	var w []float64
	for range 11 {
		w = append(w, 0.5, 0.5, 0.5, 0.5)
	}
	return w
}
