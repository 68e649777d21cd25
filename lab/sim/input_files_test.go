package sim_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/spec"
)

// byHand is a small instance for manual computations: three agents with two parameters, and the participants of five
// rounds.
var byHand = struct {
	a      [3][2][2]float64
	b      [3][2]float64
	steps  [3]int
	weight [3]float64
	start  [2]float64
	rounds [][]int
}{
	a: [3][2][2]float64{{{2, 0.5}, {0.5, 1}}, {{1, 0}, {0, 0}}, {{0.3, -0.2}, {-0.2, 3}}},
	b: [3][2]float64{{1, -2}, {0.5, 4}, {-1, 0.25}}, steps: [3]int{2, 1, 3}, weight: [3]float64{1, 2, 0.5},
	start: [2]float64{0.75, -0.5}, rounds: [][]int{{0, 1, 2}, {2, 0, 2}, {1}, {}, {2, 1}},
}

// given writes byHand to input files and returns an experiment that uses these files.
func given(t *testing.T) sim.Experiment {
	t.Helper()
	type agent struct {
		A          [2][2]float64
		B          [2]float64 `json:"b"`
		LocalSteps int        `json:"local_steps"`
		Weight     float64    `json:"weight"`
	}
	file := struct {
		Agents []agent    `json:"agents"`
		Start  [2]float64 `json:"start"`
	}{Start: byHand.start}
	for k := range byHand.a {
		file.Agents = append(file.Agents, agent{byHand.a[k], byHand.b[k], byHand.steps[k], byHand.weight[k]})
	}
	dir := t.TempDir()
	write := func(name string, v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	e := sim.Default()
	e.Runs, e.Rounds, e.Data.Quadratics = 1, len(byHand.rounds), write("instance.json", file)
	e.Participants.File = write("participants.json", byHand.rounds)
	e.StepSize = spec.StepSize{Constant: 0.1}
	return e
}

// trajectory runs an experiment and returns the state at the start and after each round.
func trajectory(t *testing.T, e sim.Experiment) (all []sim.State) {
	t.Helper()
	e.Trajectory = func(at sim.State) error {
		all = append(all, at)
		return nil
	}
	if _, err := sim.Run(t.Context(), e, nil); err != nil {
		t.Fatal(err)
	}
	return all
}

func near(t *testing.T, what string, got []float64, want [2]float64) {
	t.Helper()
	for j, v := range want {
		if len(got) != 2 || !(math.Abs(got[j]-v) <= 1e-12*max(1, math.Abs(v))) {
			t.Errorf("%s: %v, want %v", what, got, want)
			return
		}
	}
}

// step returns the parameters after a local step of agent k from x, with a proximal term.
func step(k int, x, anchor [2]float64, mu, proximal float64) (next [2]float64) {
	for i := range x {
		g := proximal * (x[i] - anchor[i])
		for j := range x {
			g += byHand.a[k][i][j] * (x[j] - byHand.b[k][j])
		}
		next[i] = x[i] - mu*g
	}
	return next
}

// TestGiven compares a run on input files with a manual computation. It covers weights, different numbers of local
// steps, repeated draws, a round without participants, FedProx, server momentum and Ditto.
func TestGiven(t *testing.T) {
	const mu, proximal, beta, eta, lambda = 0.1, 0.3, 0.6, 0.5, 0.2
	e := given(t)
	e.Proximal, e.Personal.Method, e.Personal.DittoLambda = proximal, spec.PersonalDitto, lambda
	e.ServerOptimizer = optimizer.DefaultConfig()
	e.ServerOptimizer.Name, e.ServerOptimizer.Momentum, e.ServerOptimizer.LearningRate = "fedavgm", beta, eta
	got := trajectory(t, e)
	if len(got) != len(byHand.rounds)+1 {
		t.Fatalf("%d states", len(got))
	}
	w, m, own, total := byHand.start, [2]float64{}, map[int][2]float64{}, 0.0
	for _, p := range byHand.weight {
		total += p
	}
	for i, at := range got {
		what := fmt.Sprintf("round %d", at.Round)
		if at.Round != i {
			t.Errorf("%s in place %d", what, i)
		}
		if i > 0 && len(byHand.rounds[i-1]) > 0 {
			var d [2]float64
			base, trained := w, map[int]bool{}
			for _, k := range byHand.rounds[i-1] {
				x := base
				for range byHand.steps[k] {
					x = step(k, x, base, mu*3*byHand.weight[k]/total, proximal)
				}
				if !trained[k] {
					v, ok := own[k]
					if trained[k] = true; !ok {
						v = byHand.start
					}
					for range byHand.steps[k] {
						v = step(k, v, base, mu, lambda)
					}
					own[k] = v
				}
				for j := range d {
					d[j] += (x[j] - base[j]) / float64(len(byHand.rounds[i-1]))
				}
			}
			for j := range w {
				m[j] = beta*m[j] + d[j]
				w[j] += eta * m[j]
			}
		}
		near(t, what, at.W, w)
		near(t, what+", m", at.Server["m"], m)
		if len(at.Agents) != len(own) {
			t.Errorf("%s: %v, want %d agents with a model of their own", what, at.Agents, len(own))
		}
		for k, v := range own {
			near(t, fmt.Sprintf("%s, v of %d", what, k), at.Agents[fmt.Sprint(k)]["v"], v)
		}
	}
}

// TestGivenMixing compares the algorithm feddec on a complete graph of three agents with a manual computation. The
// server averages in every second iteration.
func TestGivenMixing(t *testing.T) {
	const mu = 0.1
	e := given(t)
	text, err := os.ReadFile(e.Data.Quadratics)
	if err != nil {
		t.Fatal(err)
	}
	for k := range byHand.steps {
		text = []byte(strings.Replace(string(text),
			fmt.Sprintf(`"local_steps":%d,"weight":%v`, byHand.steps[k], byHand.weight[k]), `"local_steps":1`, 1))
	}
	if err := os.WriteFile(e.Data.Quadratics, text, 0o600); err != nil {
		t.Fatal(err)
	}
	e.Algorithm, e.Rounds, e.Mixing.ServerEvery, e.Mixing.Graph = spec.FedDec, 6, 2, sim.Complete
	e.Mixing.Weights = spec.EdgeWeightsMetropolis
	got := trajectory(t, e)
	z, last, served := [3][2]float64{byHand.start, byHand.start, byHand.start}, byHand.start, 0
	for i, at := range got {
		if i > 0 {
			var local [3][2]float64
			for k := range z {
				local[k] = step(k, z[k], [2]float64{}, mu, 0)
			}
			for k := range z { // in a complete graph of three agents, all Metropolis weights are ⅓
				for j := range z[k] {
					z[k][j] = (local[0][j] + local[1][j] + local[2][j]) / 3
				}
			}
			if (i+1)%2 == 0 {
				list := byHand.rounds[served]
				served++
				var sum [2]float64
				for _, k := range list {
					for j := range sum {
						sum[j] += z[k][j] / float64(len(list))
					}
				}
				last, z = sum, [3][2]float64{sum, sum, sum}
			}
		}
		what := fmt.Sprintf("iteration %d", at.Round)
		near(t, what+", w", at.Server["w"], last)
		for k := range z {
			near(t, fmt.Sprintf("%s, z of %d", what, k), at.Agents[fmt.Sprint(k)]["z"], z[k])
		}
	}
	if served != 3 {
		t.Errorf("the server served %d times", served)
	}
}

// TestGivenRefused checks that an error in a file names the key, the file and the position.
func TestGivenRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{`: "data.quadratics", `{"agents": []}`: "agents is empty", `{"agnets": []}`: `unknown field "agnets"`,
		`{"agents": [{"A": [[1]], "b": [0, 1]}]}`:            "agents[0]: matrix A has 1 rows",
		`{"agents": [{"A": [[1, 2], [3, 1]], "b": [0, 1]}]}`: "A is not symmetric: [1][0] is 3",
		`{"agents": [{"A": [[1, 2], [2, 1]], "b": [0, 1]}]}`: "A has the eigenvalue -1; want no " +
			"negative eigenvalue",
		`{"agents": [{"A": [[1]], "b": [0]}, {"A": [[1]], "b": []}]}`:        "agents[1]: b has 0 numbers; want 1",
		`{"agents": [{"A": [[1]], "b": [0], "local_steps": 0}]}`:             "local_steps is 0",
		`{"agents": [{"A": [[1]], "b": [0], "weight": -1}]}`:                 "weight is -1",
		`{"agents": [{"A": [[1]], "b": [0]}], "start": [1, 2]}`:              "start has 2 numbers",
		`{"agents": [{"A": [[1]], "b": [0]}, {"A": [[1]], "b": [0]}]}`:       "round 1 contains agent 2; want 0 to 1",
		`{"agents": [{"A": [[1]], "b": [0]}], "start": [1], "rounds": [[]]}`: `unknown field "rounds"`,
	} {
		e := given(t)
		if err := os.WriteFile(e.Data.Quadratics, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := sim.Run(t.Context(), e, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	e := given(t)
	e.Rounds++
	if _, err := sim.Run(t.Context(), e, nil); err == nil ||
		!strings.Contains(err.Error(), "has 5 rounds, but the experiment has 6") {
		t.Errorf("%v", err)
	}
}
