package sim

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// bareSteps takes local steps of a linear model in handwritten code. Its speed is the reference for the simulator.
func bareSteps(w, x, y []float32, n int, mu float32, rng *rand.Rand) {
	for range n {
		i := rng.IntN(len(y))
		h := x[i*len(w):][:len(w)]
		var z float32
		for j := range w {
			z += w[j] * h[j]
		}
		miss := mu * (z - y[i])
		for j := range w {
			w[j] -= miss * h[j]
		}
	}
}

const (
	benchInputs = 25
	benchRows   = 1000
)

// fleet returns a run of federated averaging with K agents that draw from a common pool of rows.
func fleet(b *testing.B, agents, participants, steps, goroutines int) *fedavg[float32] {
	b.Helper()
	e := Default()
	e.Precision, e.Agents, e.Participants.Count, e.LocalSteps = Float32, agents, participants, Each(float64(steps))
	e.Data.Inputs, e.Data.Pool = benchInputs, benchRows
	return newRun[float32](b, e, goroutines)
}

// newRun prepares a run of federated averaging.
func newRun[T learner.Float](b *testing.B, e Experiment, goroutines int) *fedavg[T] {
	b.Helper()
	in, err := instances[T](e)(0)
	if err != nil {
		b.Fatal(err)
	}
	c, err := newRunConstants(&e, 0, in)
	if err != nil {
		b.Fatal(err)
	}
	return newFedAvg(c, goroutines)
}

// timed returns the duration of round i.
func (f *fedavg[T]) timed(b *testing.B, i int) float64 {
	b.Helper()
	from := time.Now()
	if err := f.step(i); err != nil {
		b.Fatal(err)
	}
	return time.Since(from).Seconds()
}

func median(times []float64) float64 {
	slices.Sort(times)
	return times[len(times)/2]
}

// BenchmarkFedAvg compares rounds of federated averaging, with 20 agents and E steps each on one core, with two
// references: the same number of steps in bareSteps (of_bare) and in the learner (of_learner). Both metrics are ratios
// of medians. One operation is one round.
func BenchmarkFedAvg(b *testing.B) {
	for _, steps := range []int{1, 5, 10} {
		b.Run(fmt.Sprintf("E%d", steps), func(b *testing.B) {
			const agents = 20
			f := fleet(b, agents, agents, steps, 1)
			rng := rand.New(rand.NewPCG(1, 1))
			x, y, w := make([]float32, benchRows*benchInputs), make([]float32, benchRows), make([]float32, benchInputs)
			for i := range x {
				x[i] = float32(rng.NormFloat64())
			}
			var own, bare, learners []float64
			h := newHand(f.runConstants)
			h.loadAgent(0, 1)
			h.steps.StepWeight = 1
			phi := make([]float32, benchInputs)
			for i := range b.N {
				own = append(own, f.timed(b, i+1))
				from := time.Now()
				bareSteps(w, x, y, agents*steps, 0.001, rng)
				bare = append(bare, time.Since(from).Seconds())
				from = time.Now()
				for k := range agents {
					if err := h.takeLocalSteps(phi, k, 1, steps); err != nil {
						b.Fatal(err)
					}
				}
				learners = append(learners, time.Since(from).Seconds())
			}
			b.ReportMetric(median(bare)/median(own), "of_bare")
			b.ReportMetric(median(learners)/median(own), "of_learner")
			b.ReportMetric(agents*float64(steps)/median(own)/1e6, "Msteps/s")
		})
	}
}

// BenchmarkMillion compares rounds with a million participants on one core and on two cores, in alternation. x_two is
// the ratio of the fastest rounds, because other processes may slow down some rounds. MB is the memory that the process
// has obtained from the system. One operation is one round on each number of cores.
func BenchmarkMillion(b *testing.B) {
	for _, steps := range []int{1, 10} {
		b.Run(fmt.Sprintf("E%d", steps), func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
			one, two := fleet(b, 1_000_000, 1_000_000, steps, 1), fleet(b, 1_000_000, 1_000_000, steps, 2)
			var times [2][]float64
			for i := range b.N {
				times[0] = append(times[0], one.timed(b, i+1))
				times[1] = append(times[1], two.timed(b, i+1))
			}
			b.ReportMetric(slices.Min(times[0])/slices.Min(times[1]), "x_two")
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.Sys)/1e6, "MB")
		})
	}
}

// BenchmarkFedDec compares iterations of FedDec on one core and on two cores, for a ring of 100 agents with 10,000
// parameters. x_two is the ratio of the fastest iterations. One operation is one iteration on each number of cores.
func BenchmarkFedDec(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	e := Default()
	e.Algorithm, e.Agents, e.Participants.Count, e.StepSize.Constant = spec.FedDec, 100, 2, 1e-5
	e.Data.Inputs, e.Mixing.Graph, e.Mixing.Weights = 10_000, Ring, spec.EdgeWeightsMetropolis
	in, err := instances[float32](e)(0)
	if err != nil {
		b.Fatal(err)
	}
	c, err := newRunConstants(&e, 0, in)
	if err != nil {
		b.Fatal(err)
	}
	runs := [2]*feddec[float32]{newFedDec(c, 1), newFedDec(c, 2)}
	var times [2][]float64
	for op := range b.N {
		for n, f := range runs {
			from := time.Now()
			if err := f.step(2 + op); err != nil {
				b.Fatal(err)
			}
			times[n] = append(times[n], time.Since(from).Seconds())
		}
	}
	b.ReportMetric(slices.Min(times[0])/slices.Min(times[1]), "x_two")
}

// BenchmarkFewOfAMillion compares rounds with 50 participants out of one thousand agents and out of one million agents.
// x_slower is the ratio of the durations. It shows the cost of agents that are not drawn. One operation is one round of
// each kind.
func BenchmarkFewOfAMillion(b *testing.B) {
	few, many := fleet(b, 1000, 50, 10, 1), fleet(b, 1_000_000, 50, 10, 1)
	var times [2][]float64
	for i := range b.N {
		times[0] = append(times[0], few.timed(b, i+1))
		times[1] = append(times[1], many.timed(b, i+1))
	}
	b.ReportMetric(median(times[1])/median(times[0]), "x_slower")
}
