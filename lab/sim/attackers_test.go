package sim_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
)

// lied returns the model after a few rounds of four agents, of which `attackers` are dishonest.
func lied(t *testing.T, attack string, attackers int, change func(e *sim.Experiment)) []float64 {
	t.Helper()
	e := sim.Default()
	e.Agents, e.Participants.Count, e.Runs, e.Rounds, e.Data.Inputs, e.Data.Spread = 4, 4, 1, 1, 3, 1
	e.Attack, e.Attackers = attack, attackers
	if change != nil {
		change(&e)
	}
	return run(t, e).Final[0]
}

func gradients(e *sim.Experiment) { e.Exchange = spec.ExchangeGradient }

// TestAttacks checks that the model follows the attack if dishonest agents dominate.
func TestAttacks(t *testing.T) {
	times := func(v []float64, x float64) (w []float64) {
		for _, y := range v {
			w = append(w, x*y)
		}
		return w
	}
	truth, gradient := lied(t, "", 0, nil), lied(t, "", 0, gradients)
	for _, tt := range []struct {
		name      string
		attack    string
		attackers int
		change    func(e *sim.Experiment)
		want      []float64
	}{
		{"all send a number", "constant:2", 4, nil, []float64{2, 2, 2}},
		{"all send a gradient", "constant:2", 4, gradients, []float64{-0.02, -0.02, -0.02}},
		{"all go back", "signflip:1", 4, nil, times(truth, -1)},
		{"all go back by gradients", "signflip:3", 4, gradients, times(gradient, -3)},
		{"all learn from false targets", "labelflip", 4, nil, times(truth, -1)}, // the initial model is 0
		{"where nobody is honest liars send nothing", "inner", 4, nil, []float64{0, 0, 0}},
		{"two against the mean of two", "inner:1", 2, nil, []float64{0, 0, 0}},
		{"the median of four", "constant:1e30", 1, func(e *sim.Experiment) { e.Aggregation.Rule = rule.Median }, nil},
		{"to the server of feddec", "constant:2", 4, func(e *sim.Experiment) {
			e.Algorithm, e.Mixing.ServerEvery, e.Mixing.FirstBlock, e.Rounds = spec.FedDec, 2, 2, 3
		}, []float64{2, 2, 2}},
		{"packed", "constant:2", 4, func(e *sim.Experiment) { e.Codec = spec.CodecBFloat16 }, []float64{2, 2, 2}},
	} {
		got := lied(t, tt.attack, tt.attackers, tt.change)
		for j := range got {
			if tt.want == nil && !(math.Abs(got[j]) < 1) || tt.want != nil && math.Abs(got[j]-tt.want[j]) > 1e-12 {
				t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
			}
		}
	}
}

// TestLiarsOfARun checks that each run draws its own dishonest agents, reproducibly, and that each of them sends
// different noise.
func TestLiarsOfARun(t *testing.T) {
	e := sim.Default()
	e.Agents, e.Participants.Count, e.Runs, e.Rounds = 8, 8, 6, 1
	e.BatchSize = sim.Each(0) // exact gradients, so that the runs differ only in their dishonest agents
	e.Data.Kind, e.Data.Rows, e.Data.Inputs = data.KindBlobs, 80, 2
	e.Data.Model.Kind, e.Data.Model.Classes = spec.ModelSoftmax, 3
	e.Attack, e.Attackers = "signflip:1", 2
	first, again := run(t, e), run(t, e)
	others := map[float64]bool{}
	for i, w := range first.Final {
		others[w[0]] = true
		if again.Final[i][0] != w[0] {
			t.Errorf("run %d: %v, and then %v", i, w, again.Final[i])
		}
	}
	if len(others) < 3 {
		t.Errorf("all runs have the same liars: %v", first.Final)
	}
	e.Attack, e.Attackers, e.Runs = "noise:1", 8, 1
	if x := run(t, e).Final[0][0]; x == 0 || math.Abs(x) > 2 { // mean of the noise of 8 agents
		t.Errorf("noise gives %v", x)
	}
}

func TestAttackRefused(t *testing.T) {
	for want, change := range map[string]func(e *sim.Experiment){
		"attackers: is 2 but attack is empty: set attack": func(e *sim.Experiment) { e.Attackers = 2 },
		"attack: unknown attack":                          func(e *sim.Experiment) { e.Attack, e.Attackers = "x", 1 },
		"attackers: is 0; want 1":                         func(e *sim.Experiment) { e.Attack = "signflip" },
		"attackers: is 9; want 1": func(e *sim.Experiment) {
			e.Attack, e.Attackers = "alie",
				9
		},
		"aggregation.rule: krum requires at least 13 updates per round, but participants is " +
			"4": func(e *sim.Experiment) {
			e.Aggregation.Rule, e.Aggregation.MaxByzantineUpdates = rule.Krum, 5
		},
	} {
		e := sim.Default()
		e.Agents, e.Participants.Count = 5, 4
		change(&e)
		if err := e.Validate(); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
