package optimizer_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/round/optimizer"
)

// oracles contains an independent implementation of each optimiser for one coordinate, with the formulas printed in
// Reddi et al. (2021). Each function returns the steps of all rounds.
var oracles = map[string]func(c optimizer.Config, folds []float64) []float64{
	optimizer.None: func(_ optimizer.Config, folds []float64) []float64 { return folds },
	"fedavgm": func(c optimizer.Config, folds []float64) (steps []float64) {
		m := 0.0
		for _, d := range folds {
			m = c.Momentum*m + d
			steps = append(steps, c.LearningRate*m)
		}
		return steps
	},
	"fedadagrad": adaptive(func(_ optimizer.Config, v, d float64) float64 { return v + d*d }),
	"fedadam":    adaptive(func(c optimizer.Config, v, d float64) float64 { return c.Beta2*v + (1-c.Beta2)*d*d }),
	"fedyogi": adaptive(func(c optimizer.Config, v, d float64) float64 {
		sign := 0.0
		if v > d*d {
			sign = 1
		} else if v < d*d {
			sign = -1
		}
		return v - (1-c.Beta2)*d*d*sign
	}),
}

func adaptive(second func(c optimizer.Config, v, d float64) float64) func(optimizer.Config, []float64) []float64 {
	return func(c optimizer.Config, folds []float64) (steps []float64) {
		m, v := 0.0, c.Tau*c.Tau
		for _, d := range folds {
			beta1 := c.Beta1
			if c.Name == "fedadagrad" {
				beta1 = 0
			}
			m, v = beta1*m+(1-beta1)*d, second(c, v, d)
			steps = append(steps, c.LearningRate*m/(math.Sqrt(v)+c.Tau))
		}
		return steps
	}
}

func configOf(name string) optimizer.Config {
	c := optimizer.DefaultConfig()
	c.Name = name
	return c
}

// TestOracle compares twenty rounds of each optimiser with the independent implementation in oracles, on several
// coordinates, with default and with other parameters.
func TestOracle(t *testing.T) {
	const rounds, d = 20, 5
	for _, name := range optimizer.Names() {
		if oracles[name] == nil {
			t.Errorf("optimiser %s: add it to oracles", name)
			continue
		}
		for _, c := range []optimizer.Config{
			{Name: name, LearningRate: 0.7, Momentum: 0.5, Beta1: 0.8, Beta2: 0.9, Tau: 0.1},
			{Name: name, LearningRate: 1, Momentum: 0.9, Beta1: 0.9, Beta2: 0.99, Tau: 0.001},
			{Name: name, LearningRate: 2, Tau: 1},
		} {
			if err := c.Validate(); err != nil && name != optimizer.None {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(1, 2))
			folds := make([][]float64, d)
			for j := range folds {
				for range rounds {
					folds[j] = append(folds[j], rng.NormFloat64()*math.Pow(10, float64(j-2)))
				}
			}
			o := optimizer.New(c)
			state := optimizer.NewState(o, d)
			for i := range rounds {
				step := make([]float64, d)
				for j := range step {
					step[j] = folds[j][i]
				}
				o.Step(step, state)
				for j, x := range step {
					if want := oracles[name](c, folds[j])[i]; math.Abs(x-want) > 1e-12*math.Abs(want) {
						t.Fatalf("%+v, round %d, coordinate %d: step %v, want %v", c, i, j, x, want)
					}
				}
			}
		}
	}
}

// TestRepeated checks that repeating an aggregation from the same state gives the same step and state.
func TestRepeated(t *testing.T) {
	for _, name := range optimizer.Names() {
		o := optimizer.New(configOf(name))
		state := optimizer.NewState(o, 3)
		if names := o.StateVectorNames(); len(state) != len(names) {
			t.Errorf("%s: %d vectors, want %q", name, len(state), names)
		}
		o.Step([]float64{1, -2, 3}, state)
		copied := make([][]float64, len(state))
		for i, v := range state {
			copied[i] = slices.Clone(v)
		}
		a, b := []float64{0.5, 0, -1}, []float64{0.5, 0, -1}
		o.Step(a, state)
		optimizer.New(configOf(name)).Step(b, copied)
		if !slices.Equal(a, b) || !slices.EqualFunc(state, copied, slices.Equal) {
			t.Errorf("%s: %v with state %v, then %v with %v", name, a, state, b, copied)
		}
	}
}

// TestNeutral checks that the optimiser fedavgm with momentum β = 0 and learning rate η = 1 gives bitwise the same
// result as the optimiser none, including for −0.
func TestNeutral(t *testing.T) {
	c := configOf("fedavgm")
	c.Momentum, c.LearningRate = 0, 1
	o := optimizer.New(c)
	state := optimizer.NewState(o, 3)
	for _, x := range []float64{math.Copysign(0, -1), 0.1, -1e300, 0} {
		d := []float64{x, 0.3, x}
		o.Step(d, state)
		if math.Float64bits(d[0]) != math.Float64bits(x) || d[1] != 0.3 {
			t.Errorf("%v becomes %v", x, d)
		}
	}
}

// TestLearningRates checks the default learning rate of each optimiser, which applies if the configuration contains
// none.
func TestLearningRates(t *testing.T) {
	rates := map[string]float64{"fedavgm": 1, "fedadagrad": 0.1, "fedadam": 0.1, "fedyogi": 0.1}
	for _, name := range optimizer.Names() {
		want, known := rates[name]
		if name == optimizer.None {
			continue
		}
		if !known {
			t.Errorf("%s: its default rate is not in this test", name)
		}
		given := configOf(name)
		given.LearningRate = want
		a, b := []float64{1}, []float64{1}
		for d, c := range map[*[]float64]optimizer.Config{&a: configOf(name), &b: given} {
			o := optimizer.New(c)
			o.Step(*d, optimizer.NewState(o, 1))
		}
		if a[0] != b[0] {
			t.Errorf("%s: %v without a rate, %v with %v", name, a[0], b[0], want)
		}
	}
}

func TestValidate(t *testing.T) {
	for key, change := range map[string]func(c *optimizer.Config){
		"name: want ":           func(c *optimizer.Config) { c.Name = "adam" },
		"learning_rate: must":   func(c *optimizer.Config) { c.LearningRate = -1 },
		"momentum: must be at":  func(c *optimizer.Config) { c.Momentum = 1 },
		"beta1: must be at":     func(c *optimizer.Config) { c.Beta1 = -0.1 },
		"beta2: must be at":     func(c *optimizer.Config) { c.Beta2 = math.NaN() },
		"tau: must be finite":   func(c *optimizer.Config) { c.Tau = 0 },
		"learning_rate: must b": func(c *optimizer.Config) { c.LearningRate = math.Inf(1) },
	} {
		c := configOf("fedadam")
		change(&c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), key) {
			t.Errorf("%+v: %v, want %q", c, err, key)
		}
	}
	idle := optimizer.Config{Name: optimizer.None, LearningRate: 0.5, Tau: 1}
	const want = "learning_rate: is 0.5, but no server optimiser is configured: set server_optimizer.name or remove " +
		"this key"
	if err := fmt.Sprint(idle.Validate()); err != want {
		t.Error(err)
	}
	if err := fmt.Sprint(configOf("fedyogi").Validate()); err != "<nil>" {
		t.Error(err)
	}
}
