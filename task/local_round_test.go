package task_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// crew simulates a federation of K agents that all participate in each round. The quadratic risks J_k of the agents
// differ in their curvature and in their minimiser.
type crew[T learner.Float] struct {
	t       *testing.T
	problem *task.CompiledTask[T]
	data    []*learner.Samples[T]
	p       []float64 // weights p_k of the agents in the aggregate risk, with Σ p_k = 1
	steps   []int     // number E_k of local steps of each agent
	w       []T
}

func newCrew[T learner.Float](t *testing.T, w wire.Task) *crew[T] {
	c := &crew[T]{t: t, problem: compile[T](t, w), p: []float64{0.1, 0.2, 0.3, 0.4}, steps: []int{1, 1, 1, 1},
		w: []T{0.5, -0.5}}
	for k := range 4 {
		rng := rand.New(rand.NewPCG(uint64(k), 1))
		var x, y []T
		for range 6 {
			a, b := rng.NormFloat64()*(1+0.3*float64(k)), rng.NormFloat64()
			x = append(x, T(a), T(b))
			y = append(y, T(float64(k)*a-2*b+0.1*rng.NormFloat64()))
		}
		c.data = append(c.data, learner.NewSamples(2, x, y))
	}
	return c
}

// round simulates one round. The parameter weigh determines where the agent weights p_k are applied.
func (c *crew[T]) round(weigh spec.WeightPlacement) {
	c.t.Helper()
	var sent []testkit.WeightedUpdate[T]
	scale := 1.
	n := float64(len(c.data))
	for k, s := range c.data {
		job := task.LocalJob[T]{BaseParameters: c.w, Samples: s, StepWeight: 1, Steps: c.steps[k]}
		factor := 1.
		gradient := c.problem.Task.Training.ExchangeKind == spec.ExchangeGradient
		switch {
		case gradient:
			factor, scale = n*c.p[k], -c.problem.Schedule.StepSizeAt(1)
		case weigh == spec.WeightInServerMean:
			factor = n * c.p[k]
		default:
			job.StepWeight = n * c.p[k]
		}
		out, err := c.problem.RunLocalSteps(job)
		if err != nil {
			c.t.Fatal(err)
		}
		if want := c.steps[k]; !gradient && out.StepsTaken != want || gradient &&
			(out.StepsTaken != 1 || out.RiskAfter != out.RiskBefore) {
			c.t.Fatalf("outcome %+v, want %d steps", out, want)
		}
		sent = append(sent, testkit.WeightedUpdate[T]{ID: wire.AgentID(fmt.Sprint(k)), Factor: factor,
			Values: out.UpdateVector})
	}
	next := make([]T, len(c.w))
	if err := round.ApplyStep(next, c.w, testkit.ReferenceAggregate(1, scale, len(c.data), sent...)); err != nil {
		c.t.Fatal(err)
	}
	c.w = next
}

// minimiser returns the solution of Σ q_k ∇J_k(w) = 0, which is the solution of Σ q_k R_k w = Σ q_k r_k. Here R_k is
// the mean of h hᵀ and r_k is the mean of γ h over the rows of agent k, for features h and targets γ.
func (c *crew[T]) minimiser(q []float64) [2]float64 {
	var r11, r12, r22, b1, b2 float64
	for k, s := range c.data {
		f := q[k] / float64(s.Len())
		for i := range s.Len() {
			h, y := s.Row(i)
			h1, h2, g := float64(h[0]), float64(h[1]), float64(y)
			r11, r12, r22 = r11+f*h1*h1, r12+f*h1*h2, r22+f*h2*h2
			b1, b2 = b1+f*g*h1, b2+f*g*h2
		}
	}
	det := r11*r22 - r12*r12
	return [2]float64{(r22*b1 - r12*b2) / det, (r11*b2 - r12*b1) / det}
}

func distance[T learner.Float](w []T, to [2]float64) float64 {
	return math.Hypot(float64(w[0])-to[0], float64(w[1])-to[1])
}

// TestExchangesAgree checks that with one exact local step, the exchange of parameters and the exchange of gradients
// give the same sequence of models (lecture, equations (11)–(14)), for each weight placement.
func TestExchangesAgree(t *testing.T) {
	t.Run("float32", func(t *testing.T) { exchangesAgree[float32](t, 1e-6) })
	t.Run("float64", func(t *testing.T) { exchangesAgree[float64](t, 1e-12) })
}

func exchangesAgree[T learner.Float](t *testing.T, within float64) {
	w := linear()
	w.Training.NormalizesStepSize = true
	gradient := w
	gradient.Training.ExchangeKind = spec.ExchangeGradient
	step, mean, grad := newCrew[T](t, w), newCrew[T](t, w), newCrew[T](t, gradient)
	for i := range 30 {
		step.round(spec.WeightInStepSize)
		mean.round(spec.WeightInServerMean)
		grad.round(spec.WeightInServerMean)
		for j, want := range grad.w {
			scale := max(1, math.Abs(float64(want)))
			if d := math.Abs(float64(step.w[j] - want)); !(d <= within*scale) {
				t.Fatalf("round %d: weights in the step: %v, gradients: %v", i+1, step.w, grad.w)
			}
			if d := math.Abs(float64(mean.w[j] - want)); !(d <= within*scale) {
				t.Fatalf("round %d: weights in the mean: %v, gradients: %v", i+1, mean.w, grad.w)
			}
		}
	}
	if distance(grad.w, [2]float64{0.5, -0.5}) < 0.5 {
		t.Errorf("nothing moved: %v", grad.w)
	}
}

// TestWeightsCountOnce checks that with both weight placements the models converge to the minimiser of Σ p_k J_k, and
// not of Σ p_k² J_k.
func TestWeightsCountOnce(t *testing.T) {
	for _, weigh := range []spec.WeightPlacement{spec.WeightInStepSize, spec.WeightInServerMean} {
		for _, steps := range [][]int{{1, 1, 1, 1}, {5, 5, 5, 5}} {
			w := linear()
			w.Training.StepSize, w.Training.NormalizesStepSize = 0.005, true
			c := newCrew[float64](t, w)
			c.steps = steps
			want := c.minimiser(c.p)
			twice := c.minimiser([]float64{0.01, 0.04, 0.09, 0.16})
			for range 8000 {
				c.round(weigh)
			}
			within := 1e-9
			if steps[0] > 1 {
				// Several local steps move agents apart, in proportion to the step size, so allow a larger difference.
				within = 0.02
			}
			if d := distance(c.w, want); d > within {
				t.Errorf("weights in the %s, %d steps: %v, want %v", weigh, steps[0], c.w, want)
			}
			if d := distance(twice[:], want); d < 0.1 {
				t.Errorf("the two minimisers are %v apart only", d)
			}
		}
	}
}

// TestNormalizeDecidesTheLimit checks that dividing the step size by the number E_k of local steps (ch5, equation
// (5.26)) leads to the minimiser of Σ J_k, for any E_k. Without this division, the limit must be the minimiser of Σ E_k
// J_k (ch5, problem 5.1).
func TestNormalizeDecidesTheLimit(t *testing.T) {
	for _, normalize := range []bool{true, false} {
		w := linear()
		w.Training.NormalizesStepSize, w.Training.StepSize = normalize, 0.0005
		if normalize {
			w.Training.StepSize = 0.002
		}
		c := newCrew[float64](t, w)
		c.p, c.steps = []float64{0.25, 0.25, 0.25, 0.25}, []int{1, 2, 5, 10}
		all, byWork := c.minimiser(c.p), c.minimiser([]float64{1, 2, 5, 10})
		for range 12000 {
			c.round(spec.WeightInStepSize)
		}
		want, other := all, byWork
		if !normalize {
			want, other = byWork, all
		}
		if d, far := distance(c.w, want), distance(c.w, other); d > 0.02 || far < 0.3 {
			t.Errorf("normalize %v: at %v, %v from the right limit %v and %v from the other %v", normalize, c.w, d,
				want, far, other)
		}
	}
}

// TestStoppedStretches checks that an agent that is stopped after e of its E_k local steps scales its update by E_k/e.
func TestStoppedStretches(t *testing.T) {
	w := linear()
	w.Training.NormalizesStepSize, w.Training.BatchSize = true, 2
	c := newCrew[float64](t, w)
	for e := 0; e <= 5; e++ {
		polls := 0
		job := task.LocalJob[float64]{BaseParameters: []float64{1, 2}, Samples: c.data[0], StepWeight: 1.5, Steps: 5,
			Rand: task.AgentRand(1, 2, task.AgentRandomKey("a")), ShouldStop: func() bool {
				polls++
				return polls > e
			}}
		out, err := c.problem.RunLocalSteps(job)
		if e == 0 {
			if !errors.Is(err, task.ErrNoSteps) {
				t.Errorf("without a step: %v", err)
			}
			continue
		}
		if err != nil || out.StepsTaken != e {
			t.Fatalf("%d steps: %+v, %v", e, out, err)
		}
		draws := &learner.StepSampler[float64]{Data: c.data[0], Rand: task.AgentRand(1, 2, task.AgentRandomKey("a"))}
		draws.BatchSize = 2
		d := learner.Descent[float64]{Model: c.problem.Model, Draws: draws,
			Schedule: learner.StepSizeSchedule{ConstantStepSize: 0.1}}
		phi := []float64{1, 2}
		if _, err := d.Run(phi, e, 1.5/5, 0, nil); err != nil {
			t.Fatal(err)
		}
		for i, b := range job.BaseParameters {
			if want := (phi[i] - b) * 5 / float64(e); math.Abs(out.UpdateVector[i]-want) > 1e-12 {
				t.Errorf("%d steps: element %d is %v, want %v", e, i, out.UpdateVector[i], want)
			}
		}
		if !slices.Equal(job.BaseParameters, []float64{1, 2}) {
			t.Errorf("the base has changed to %v", job.BaseParameters)
		}
		if out.RiskBefore != c.problem.Model.Risk(job.BaseParameters, c.data[0].All()) ||
			out.RiskAfter != c.problem.Model.Risk(phi, c.data[0].All()) {
			t.Errorf("%d steps: risks %v and %v", e, out.RiskBefore, out.RiskAfter)
		}
	}
}

// TestOffset checks that the step size schedule continues after the local steps of earlier rounds.
func TestOffset(t *testing.T) {
	w := linear()
	w.Training.StepSize, w.Training.StrongConvexity, w.Training.StepSizeDecayOffset = 0, 1, 30
	c := newCrew[float64](t, w)
	run := func(base []float64, steps int, offset uint64) []float64 {
		out, err := c.problem.RunLocalSteps(task.LocalJob[float64]{BaseParameters: base, Samples: c.data[0],
			StepWeight: 1,
			Steps:      steps,
			StepOffset: offset})
		if err != nil {
			t.Fatal(err)
		}
		return []float64{base[0] + out.UpdateVector[0], base[1] + out.UpdateVector[1]}
	}
	base := []float64{1, 2}
	whole, parts := run(base, 7, 0), run(run(base, 3, 0), 4, 3)
	if d := math.Hypot(whole[0]-parts[0], whole[1]-parts[1]); d > 1e-12 {
		t.Errorf("7 steps lead to %v, 3 and 4 to %v", whole, parts)
	}
}

// TestDivergence checks that an agent returns an error instead of an update with infinite numbers or NaN.
func TestDivergence(t *testing.T) {
	for _, exchange := range []spec.ExchangeKind{spec.ExchangeParameters, spec.ExchangeGradient} {
		w := linear()
		w.Training.ExchangeKind, w.Training.StepSize = exchange, 1e30
		c := newCrew[float32](t, w)
		for _, base := range [][]float32{{1e30, 1e30}, {math.MaxFloat32, math.MaxFloat32}} {
			out, err := c.problem.RunLocalSteps(task.LocalJob[float32]{BaseParameters: base, Samples: c.data[0],
				StepWeight: 1,
				Steps:      5})
			d := (*learner.DivergenceError)(nil)
			if err != nil && !errors.As(err, &d) {
				t.Errorf("exchange %s: %v", exchange, err)
			}
			for _, x := range out.UpdateVector {
				if err == nil && x-x != 0 {
					t.Errorf("exchange %s sends %v", exchange, out.UpdateVector)
				}
			}
			if base[0] == math.MaxFloat32 && err == nil {
				t.Errorf("exchange %s: nothing is wrong with %v", exchange, out)
			}
		}
	}
}

// TestAffordedStepsAreScaled checks an agent that can compute only E_k gradients in a block of H steps: it must spread
// them evenly and scale each by H/E_k. The expected block on one row (h, γ) is x ← x − μ (H/E_k) p_k h(hᵀx − γ) at the
// steps ⌈H/E_k⌉, ⌈2H/E_k⌉, …, H.
func TestAffordedStepsAreScaled(t *testing.T) {
	const h = 6
	w := linear()
	w.Training.MaxLocalSteps, w.Mixing = h, wire.MixingSettings{IntervalSteps: 1, SnapshotRetryMillis: 1,
		SnapshotCodec: spec.CodecRaw}
	p := compile[float64](t, w)
	row, target, base := []float64{2, -1}, 3.0, []float64{0.5, 0.25}
	for afford, takes := range map[int][]uint64{1: {6}, 2: {3, 6}, 4: {2, 3, 5, 6}, 6: {1, 2, 3, 4, 5, 6}} {
		s, err := p.NewTaskStepRunner(task.LocalJob[float64]{BaseParameters: base, Samples: learner.NewSamples(2, row,
			[]float64{target}),
			StepWeight: 0.5, Steps: afford, Rand: rand.New(rand.NewPCG(1, 2))})
		if err != nil {
			t.Fatal(err)
		}
		got, want := slices.Clone(base), slices.Clone(base)
		for step := uint64(1); step <= h; step++ {
			if err := s.TakeSteps(got, step, step); err != nil {
				t.Fatal(err)
			}
			if slices.Contains(takes, step) {
				long := w.Training.StepSize * h / float64(afford) * 0.5 * (row[0]*want[0] + row[1]*want[1] - target)
				want[0], want[1] = want[0]-long*row[0], want[1]-long*row[1]
			}
			if d := math.Hypot(got[0]-want[0], got[1]-want[1]); !(d < 1e-12) {
				t.Errorf("E_k = %d, step %d: %v, want %v", afford, step, got, want)
				break
			}
		}
	}
}

// TestScheduleInARound checks on one row of data that the step size schedule continues from earlier rounds, with and
// without neighbours.
func TestScheduleInARound(t *testing.T) {
	const h, offset, gamma = 3, 20, 7
	row, target, base := []float64{2, -1}, 3.0, []float64{0.5, 0.25}
	for _, mixing := range []wire.MixingSettings{{}, {IntervalSteps: 1, SnapshotRetryMillis: 1,
		SnapshotCodec: spec.CodecRaw}} {
		w := linear()
		w.Training.StepSize, w.Training.StrongConvexity, w.Training.StepSizeDecayOffset = 0, 1, gamma
		w.Training.MaxLocalSteps, w.Mixing = h, mixing
		s, err := compile[float64](t, w).NewTaskStepRunner(task.LocalJob[float64]{BaseParameters: base, StepWeight: 1,
			Steps:      h,
			StepOffset: offset,
			Samples:    learner.NewSamples(2, row, []float64{target})})
		if err != nil {
			t.Fatal(err)
		}
		got, want := slices.Clone(base), slices.Clone(base)
		if err := s.TakeSteps(got, 1, h); err != nil {
			t.Fatal(err)
		}
		for step := 1; step <= h; step++ {
			long := 2. / float64(gamma+offset+step) * (row[0]*want[0] + row[1]*want[1] - target)
			want[0], want[1] = want[0]-long*row[0], want[1]-long*row[1]
		}
		if d := math.Hypot(got[0]-want[0], got[1]-want[1]); !(d < 1e-12) {
			t.Errorf("mixing %+v: %v, want %v", mixing, got, want)
		}
	}
}
