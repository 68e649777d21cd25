package sim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/lab/npy"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/spec"
)

// dumped returns experiments that together use all kinds of random draws.
func dumped() map[string]func(*sim.Experiment) {
	all := experiments()
	all["stored rows, batches"] = func(e *sim.Experiment) {
		e.Data.Kind, e.Data.Centre, e.Data.Rows, e.BatchSize = data.KindToy, data.Numbers{1, -1}, 6, sim.Each(2)
	}
	all["all rows, noise, gradients"] = func(e *sim.Experiment) {
		e.Data.Kind, e.Data.Eigenvalues, e.BatchSize = data.KindQuadratics, data.Numbers{1, 0.5}, sim.Each(0)
		e.GradientNoise, e.Exchange = spec.GradientNoise{Law: spec.NoiseGaussian, Variance: 0.1}, spec.ExchangeGradient
	}
	all["the bilinear network, stragglers, weights"] = func(e *sim.Experiment) {
		e.Data.Kind, e.Data.Start, e.Response.Probability = data.KindBilinear, data.Numbers{0.1}, sim.Each(0.5)
		e.Weights, e.LocalSteps = sim.Each(1, 2, 3, 4, 5, 6, 7, 8), sim.Each(3)
	}
	all["a network from a random start"] = func(e *sim.Experiment) {
		e.Data.Kind, e.Data.Rows, e.Data.Partition, e.Data.Model = data.KindBlobs, 90, data.PartitionShards, spec.Model{
			Kind: spec.ModelMLP, HiddenUnits: []int{4}, Classes: 3, Activation: spec.ActivationTanh,
			Risk:    spec.LossSoftmax,
			HasBias: true,
		}
	}
	all["a network of filters from a random start"] = func(e *sim.Experiment) {
		all["a network from a random start"](e)
		e.Data.Model.Kind = spec.ModelConv1D
		e.Data.Model.Convolution = spec.Convolution{InputChannels: 2, KernelSteps: 2, FiltersPerLayer: []int{3},
			PoolSteps: 2}
	}
	all["feddec, all links up"] = func(e *sim.Experiment) {
		e.Algorithm, e.Mixing.Graph, e.Mixing.ServerEvery, e.Sampling = spec.FedDec, sim.Ring, 4, "with_replacement"
		e.Data.Kind, e.Data.Inputs, e.StepSize.IsDiminishing = data.KindRegression, 3, true
	}
	all["feddec, failing links, metropolis"] = func(e *sim.Experiment) {
		e.Algorithm, e.Mixing.Graph, e.Mixing.LinkUp, e.Mixing.Weights = spec.FedDec, sim.Complete, 0.5, "metropolis"
	}
	all["feddec, few gradients, mixing at every second step"] = func(e *sim.Experiment) {
		e.Algorithm, e.Mixing.Graph, e.Mixing.ServerEvery, e.Mixing.Every = spec.FedDec, sim.Ring, 4, 2
		e.Mixing.Gradients, e.Mixing.LinkUp, e.Mixing.Weights = sim.Each(1, 2, 3, 4, 1, 2, 3, 0), 0.7, "metropolis"
	}
	all["shadow"] = func(e *sim.Experiment) {
		e.Participants.Count, e.RecordMeanIterate, e.LocalSteps = 8, true, sim.Each(3)
	}
	return all
}

func dumpedExperiment(change func(*sim.Experiment)) sim.Experiment {
	e := sim.Default()
	e.Rounds, e.Runs, e.Seed = 12, 2, 9
	change(&e)
	e.Agents, e.Participants.Count, e.Rounds, e.Runs = 8, max(3, e.Participants.Count%9), 12, 2
	return e
}

// TestReplay checks that the replay of a dump gives bit-identical results, and that writing a dump does not change the
// result.
func TestReplay(t *testing.T) {
	for name, change := range dumped() {
		t.Run(name, func(t *testing.T) {
			e := dumpedExperiment(change)
			want := run(t, e)
			e.Dump = t.TempDir()
			if got := run(t, e); !reflect.DeepEqual(got.Metrics, want.Metrics) {
				t.Fatal("a run that is dumped gives other numbers")
			}
			again, err := sim.LoadDump(e.Dump)
			if err != nil {
				t.Fatal(err)
			}
			again.Seed = 1000 // a replay must ignore the seed, because all draws come from the files
			got := run(t, again)
			if !reflect.DeepEqual(got.Final, want.Final) || !reflect.DeepEqual(got.Rounds, want.Rounds) {
				t.Fatalf("the models of the replay differ:\n%v\n%v", got.Final, want.Final)
			}
			for _, m := range got.Metrics {
				if !reflect.DeepEqual(m, *want.Metric(m.Name)) {
					t.Errorf("%s differs:\n%v\n%v", m.Name, m.Mean, want.Metric(m.Name).Mean)
				}
			}
			if len(got.Metrics) == 0 {
				t.Error("nothing is recorded")
			}
			if want.Network != nil {
				first, err := json.Marshal(want.Network)
				second, againErr := json.Marshal(got.Network)
				if err != nil || againErr != nil || !bytes.Equal(first, second) {
					t.Errorf("the graph of the replay differs:\n%s\n%s, %v, %v", first, second, err, againErr)
				}
			}
		})
	}
}

// small writes a dump by hand. It describes two agents with one row each, and one round with two local steps.
func small(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	runDir := filepath.Join(dir, "run-0000")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(runDir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(dir, "experiment.json"),
		`{"runs": 1, "rounds": 1, "local_steps": 2, "step_size": {"constant": 0.5, "normalize": true}}`)
	write(filepath.Join(runDir, "problem.json"),
		`{"agents": 2, "model": {"inputs": 1, "outputs": 1, "risk": "squared"}}`)
	floats := func(name string, shape []int, numbers ...float64) { array(t, runDir, name, shape, numbers...) }
	floats("x", []int{3, 1}, 1, 2, 1)
	floats("y", []int{3}, 1, 4, 3)
	floats("rows", []int{2}, 2, 1)
	floats("participants", []int{2, 3}, 1, 0, 1, 1, 1, 1)
	floats("steps", []int{4, 3}, 1, 0, 1, 1, 0, 2, 1, 1, 1, 1, 1, 2)
	floats("scale", []int{4}, 1, 1, 2, 0)
	floats("batch", []int{4}, 1, 2, 1, 1)
	floats("sample_rows", []int{5}, 0, 0, 1, 0, 0)
	return dir
}

func array(t *testing.T, dir, name string, shape []int, numbers ...float64) {
	t.Helper()
	saved(t, dir, name, shape, numbers)
}

func whole(t *testing.T, dir, name string, shape []int, numbers ...int64) {
	t.Helper()
	saved(t, dir, name, shape, numbers)
}

func saved[T npy.Element](t *testing.T, dir, name string, shape []int, numbers []T) {
	t.Helper()
	var b bytes.Buffer
	if err := npy.Write(&b, numbers, shape...); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".npy"), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestReplayByHand compares the replay of the dump that small writes with numbers that were computed by hand.
func TestReplayByHand(t *testing.T) {
	e, err := sim.LoadDump(small(t))
	if err != nil {
		t.Fatal(err)
	}
	got := run(t, e).Final[0][0]
	// Agent 0, μ = ¼: row (1, 1): φ = ¼; both rows, gradient ½(−(1−¼) − 2(4−½)) = −3.875: φ = 1.21875. Agent 1: scaled
	// by 2, row (1, 3): φ = ¼·2·3 = 1.5; then the agent skips a step.
	if want := (1.21875 + 1.5) / 2; got != want {
		t.Errorf("w_1 = %v, by hand %v", got, want)
	}
}

func TestBadFiles(t *testing.T) {
	for want, spoil := range spoilers {
		dir := small(t)
		spoil(t, filepath.Join(dir, "run-0000"))
		e, err := sim.LoadDump(dir)
		if err == nil {
			_, err = sim.Run(context.Background(), e, nil)
		}
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "open "+dir, ""), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

// spoilers contains functions that damage the dump that small has written. The key is a part of the expected error
// text.
var spoilers = map[string]func(t *testing.T, dir string){
	"steps.npy has 4 rows": func(t *testing.T, dir string) { array(t, dir, "scale", []int{3}, 1, 1, 1) },
	"row 2, (1, 1, 2): want the steps of an agent in a round in consecutive rows": func(t *testing.T, dir string) {
		array(t, dir, "steps", []int{4, 3}, 1, 0, 1, 1, 0, 2, 1, 1, 2, 1, 1, 1)
	},
	"does not contain step 1 of agent 1 in round 1": func(t *testing.T, dir string) {
		array(t, dir, "participants", []int{2, 3}, 1, 0, 1, 1, 1, 1)
		array(t, dir, "steps", []int{4, 3}, 1, 0, 1, 1, 0, 2, 2, 1, 1, 2, 1, 2)
	},
	"agent 1 has no row 7": func(t *testing.T, dir string) {
		array(t, dir, "sample_rows", []int{5}, 0, 0, 1, 7, 0)
	},
	"batch.npy specifies 6 samples": func(t *testing.T, dir string) { array(t, dir, "batch", []int{4}, 1, 2, 2, 1) },
	"want rounds from 1, agents from 0 to 1": func(t *testing.T, dir string) {
		array(t, dir, "participants", []int{1, 3}, 0, 0, 1)
	},
	"participants.npy has no participants in round 2": func(t *testing.T, dir string) {
		must(t, os.WriteFile(filepath.Join(dir, "..", "experiment.json"), []byte(`{"runs": 1, "rounds": 2}`),
			0o600))
	},
	"agents from 0 to 1":     func(t *testing.T, dir string) { array(t, dir, "participants", []int{1, 3}, 1, 5, 1) },
	"x.npy: has shape [2 2]": func(t *testing.T, dir string) { array(t, dir, "x", []int{2, 2}, 1, 2, 3, 4) },
	"agent 1 has 5 rows":     func(t *testing.T, dir string) { array(t, dir, "rows", []int{2}, 2, 5) },
	"agent 1 has 922":        func(t *testing.T, dir string) { whole(t, dir, "rows", []int{2}, 2, math.MaxInt64) },
	"batch.npy: row 0 is 461": func(t *testing.T, dir string) {
		whole(t, dir, "batch", []int{4}, 1<<62, 1<<62, 1<<62, 1<<62) // the sum overflows to 0
		array(t, dir, "sample_rows", []int{0})
	},
	"row 2, (1, 0, 1): duplicate steps for this agent and round": func(t *testing.T, dir string) {
		array(t, dir, "steps", []int{4, 3}, 1, 0, 1, 1, 0, 2, 1, 0, 1, 1, 0, 2)
	},
	"the squares of the rows of agent 0 are not finite": func(t *testing.T, dir string) {
		array(t, dir, "x", []int{3, 1}, 1, math.NaN(), 1)
	},
	"the Hessian is not finite": func(t *testing.T, dir string) {
		array(t, dir, "hessian", []int{1, 1}, math.Inf(1))
		array(t, dir, "minimizer", []int{1}, 0)
	},
	"takes 2 steps in round 1, but shadow requires 1 (local_steps) from every agent": func(t *testing.T, dir string) {
		must(t, os.WriteFile(filepath.Join(dir, "..", "experiment.json"),
			[]byte(`{"runs": 1, "rounds": 1, "shadow": true}`), 0o600))
	},
	"unknown field \"agens\"": func(t *testing.T, dir string) {
		must(t, os.WriteFile(filepath.Join(dir, "problem.json"), []byte(`{"agens": 2}`), 0o600))
	},
	"got 1 weights for 2 agents": func(t *testing.T, dir string) {
		must(t, os.WriteFile(filepath.Join(dir, "problem.json"),
			[]byte(`{"agents": 2, "weights": [1], "model": {"inputs": 1, "outputs": 1, "risk": "squared"}}`),
			0o600))
	},
	"weight of agent 1 is 0": func(t *testing.T, dir string) {
		must(t, os.WriteFile(filepath.Join(dir, "problem.json"),
			[]byte(`{"agents": 2, "weights": [1, 0], "model": {"inputs": 1, "outputs": 1, "risk": "squared"}}`),
			0o600))
	},
	"regressors.npy has shape [3 1]": func(t *testing.T, dir string) {
		array(t, dir, "optima", []int{2, 1}, 1, 2)
		array(t, dir, "regressors", []int{3, 1}, 1, 1, 1)
	},
	"regressors: row 1 has the invalid value -1": func(t *testing.T, dir string) {
		must(t, os.Remove(filepath.Join(dir, "rows.npy")))
		array(t, dir, "optima", []int{2, 1}, 1, 2)
		array(t, dir, "regressors", []int{2, 1}, 1, -1)
		array(t, dir, "noise_var", []int{1}, 0.1)
	},
	"noise_var.npy has 0 numbers": func(t *testing.T, dir string) {
		array(t, dir, "optima", []int{2, 1}, 1, 2)
		array(t, dir, "regressors", []int{1, 1}, 1)
	},
	"problem.json: want " + spec.JoinWithOr(spec.LossKinds()) + `, got "cubed"`: func(t *testing.T, dir string) {
		must(t, os.WriteFile(filepath.Join(dir, "problem.json"),
			[]byte(`{"agents": 2, "model": {"inputs": 1, "outputs": 1, "risk": "cubed"}}`), 0o600))
	},
	"scale.npy: not an npy file": func(t *testing.T, dir string) {
		must(t, os.WriteFile(filepath.Join(dir, "scale.npy"), []byte("1 1 1 1"), 0o600))
	},
	"problem.json: no such file": func(t *testing.T, dir string) {
		must(t, os.Remove(filepath.Join(dir, "problem.json")))
	},
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
