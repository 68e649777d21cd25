package learner

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

// line returns a descent for fitting y = 2 + 3x plus a deviation, with a linear model that has a bias: its parameters
// are [slope, intercept].
func line(t *testing.T, batch int, schedule StepSizeSchedule) *Descent[float64] {
	t.Helper()
	m := newModel[float64](t, Architecture{Inputs: 1, Outputs: 1, HasBias: true, Risk: spec.LossSquared})
	data := NewSamples(1, []float64{-1, 0, 1, 2}, []float64{-1.25, 2.25, 5.25, 7.75})
	return &Descent[float64]{Model: m,
		Draws: &StepSampler[float64]{Data: data, GradientConfig: GradientConfig{BatchSize: batch}}, Schedule: schedule}
}

// run takes local steps with random draws from rng.
func run[T Float](t *testing.T, d *Descent[T], w []T, steps int, weight float64, offset uint64, rng *rand.Rand) {
	t.Helper()
	s := d.Draws.(*StepSampler[T])
	s.Rand = rng
	if err := s.Validate(d.Model); err != nil {
		t.Fatal(err)
	}
	if taken, err := d.Run(w, steps, weight, offset, nil); err != nil || taken != steps {
		t.Fatalf("Run(%d steps) = %d, %v", steps, taken, err)
	}
}

func TestExactGradientReachesLeastSquares(t *testing.T) {
	d := line(t, 0, StepSizeSchedule{ConstantStepSize: 0.3})
	w := make([]float64, 2)
	run(t, d, w, 400, 1, 0, nil)
	// The normal equations with n=4, Σx=2, Σx²=6, Σy=14, Σxy=22 give the slope (4·22−2·14)/(4·6−2²) and the intercept
	// (14−2·slope)/4.
	compare(t, "w", w, []float64{3, 2}, 1e-12)
}

// TestGoldenTrajectory compares exact gradient descent on the line with iterates φ − μ(Aφ − b) computed by hand, with A
// = [[1.5 0.5] [0.5 1]], b = [5.5 3.5] and the step size μ = 0.1.
func TestGoldenTrajectory(t *testing.T) {
	d := line(t, 0, StepSizeSchedule{ConstantStepSize: 0.1})
	w := make([]float64, 2)
	for step, want := range [][]float64{{0.55, 0.35}, {1, 0.6375}, {1.368125, 0.87375}, {1.66921875, 1.06796875}} {
		run(t, d, w, 1, 1, uint64(step), nil)
		compare(t, "w", w, want, 1e-10)
	}
	// One run of all steps must give the same result.
	again := make([]float64, 2)
	run(t, d, again, 4, 1, 0, nil)
	compare(t, "w in one run", again, w, 0)
}

func TestNormalizeAndWeight(t *testing.T) {
	for _, test := range []struct {
		normalize    bool
		steps        int
		weight, want float64 // expected step size
	}{
		{false, 5, 1, 0.1}, {true, 5, 1, 0.02}, {true, 5, 2.5, 0.05}, {false, 5, 0.5, 0.05}, {true, 1, 1, 0.1},
	} {
		d := line(t, 0, StepSizeSchedule{ConstantStepSize: 0.1})
		d.NormalizesStepSize = test.normalize
		got := make([]float64, 2)
		run(t, d, got, test.steps, test.weight, 0, nil)
		want := make([]float64, 2)
		run(t, line(t, 0, StepSizeSchedule{ConstantStepSize: test.want}), want, test.steps, 1, 0, nil)
		compare(t, "w", got, want, 1e-14)
	}
}

func TestDecayingScheduleCountsAcrossRuns(t *testing.T) {
	schedule := NewStepSizeSchedule(spec.StepSize{IsDiminishing: true, StrongConvexity: 0.5, Smoothness: 2}, 3)
	d := line(t, 2, schedule)
	whole, parts := make([]float64, 2), make([]float64, 2)
	run(t, d, whole, 7, 1, 0, newRNG(9))
	rng := newRNG(9)
	run(t, d, parts, 3, 1, 0, rng)
	run(t, d, parts, 4, 1, 3, rng)
	compare(t, "w", parts, whole, 0)
	restarted := make([]float64, 2)
	rng = newRNG(9)
	run(t, d, restarted, 3, 1, 0, rng)
	run(t, d, restarted, 4, 1, 0, rng)
	if restarted[0] == whole[0] {
		t.Error("the offset makes no difference")
	}
}

// TestScheduleCountsFromOne checks that local steps are counted from 1: the step t must be the step of
// TestGoldenTrajectory with the step size μ_t = 2/(μ_sc (γ + t)).
func TestScheduleCountsFromOne(t *testing.T) {
	d := line(t, 0, StepSizeSchedule{StrongConvexity: 0.5, DecayOffset: 7})
	got, slope, intercept := make([]float64, 2), 0.0, 0.0
	run(t, d, got, 3, 1, 20, nil)
	for _, step := range []float64{21, 22, 23} {
		mu := 2 / (0.5 * (7 + step))
		slope, intercept = slope-mu*(1.5*slope+0.5*intercept-5.5), intercept-mu*(0.5*slope+intercept-3.5)
	}
	compare(t, "w after steps 21 to 23", got, []float64{slope, intercept}, 1e-12)
}

func TestFreshBatchEveryStep(t *testing.T) {
	// With the step size μ = 1 and a batch of one sample (x, y) with x = ±1, a local step fits the sample exactly: the
	// parameter becomes w = y/x. The successive values of w therefore reveal which samples were drawn.
	for _, batch := range []int{1, 2} {
		m := newModel[float64](t, Architecture{Inputs: 1, Outputs: 1, Risk: spec.LossSquared})
		n := 50
		x, y := make([]float64, n), make([]float64, n)
		for i := range y {
			x[i], y[i] = 1, float64(i)
		}
		draws := &StepSampler[float64]{Data: NewSamples(1, x, y), GradientConfig: GradientConfig{BatchSize: batch}}
		d := &Descent[float64]{Model: m, Draws: draws, Schedule: StepSizeSchedule{ConstantStepSize: 1}}
		w, rng, seen := make([]float64, 1), newRNG(10), map[float64]bool{}
		for range 40 {
			run(t, d, w, 1, 1, 0, rng)
			seen[w[0]] = true
		}
		if len(seen) < 20 {
			t.Errorf("batch of %d: %d different draws in 40 steps", batch, len(seen))
		}
	}
}

func TestBatchOfOneDrawsLikeDraw(t *testing.T) {
	d := line(t, 1, StepSizeSchedule{ConstantStepSize: 0.1})
	w, want := make([]float64, 2), make([]float64, 2)
	run(t, d, w, 5, 1, 0, newRNG(11))
	rng, b := newRNG(11), Batch[float64]{}
	for range 5 {
		d.Draws.(*StepSampler[float64]).Data.DrawBatch(&b, 1, rng)
		d.Model.takeStep(want, &StepDraw[float64]{Batch: b, GradientScale: 1}, 0.1, &StepCorrection[float64]{})
	}
	compare(t, "w", w, want, 0)
}

func TestGradientAt(t *testing.T) {
	d := line(t, 0, StepSizeSchedule{ConstantStepSize: 0.1})
	grad := make([]float64, 2)
	d.GradientAt(grad, []float64{0, 0})
	compare(t, "gradient", grad, []float64{-5.5, -3.5}, 1e-14)
}

func TestStopBetweenSteps(t *testing.T) {
	for _, allowed := range []int{0, 1, 3} {
		d := line(t, 0, StepSizeSchedule{ConstantStepSize: 0.1})
		w, want := make([]float64, 2), make([]float64, 2)
		polled := 0
		taken, err := d.Run(w, 10, 1, 0, func() bool { polled++; return polled > allowed })
		if err != nil || taken != allowed {
			t.Errorf("stopped after %d: took %d, %v", allowed, taken, err)
		}
		if allowed > 0 {
			run(t, d, want, allowed, 1, 0, nil)
		}
		compare(t, "w", w, want, 0)
	}
}

func TestDivergence(t *testing.T) {
	d := line(t, 0, StepSizeSchedule{ConstantStepSize: 1e100})
	_, err := d.Run(make([]float64, 2), 50, 1, 0, nil)
	// The magnitude |w| of the parameter grows by a factor of 1e100 per local step. The risk contains w², which exceeds
	// 1e308 after two steps, so the divergence is detected at the third step.
	check := func(err error, step int, want string) {
		t.Helper()
		var diverged *DivergenceError
		if !errors.As(err, &diverged) || diverged.Step != step || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
	check(err, 3, "training diverged at local step 3: the risk (mean loss) is +Inf; use a smaller step size or check "+
		"the scale of the data")

	// A saturated margin of the logistic loss hides an infinite parameter from the risk. The check at the end of the
	// run must detect the parameter.
	m := newModel[float32](t, Architecture{Inputs: 1, Outputs: 1, Risk: spec.LossLogistic})
	big := &StepSampler[float32]{Data: NewSamples(1, []float32{1e30}, []float32{1})}
	hidden := Descent[float32]{Model: m, Draws: big, Schedule: StepSizeSchedule{ConstantStepSize: 1e30}}
	taken, err := hidden.Run(make([]float32, 1), 4, 1, 0, nil)
	check(err, 4, "training diverged at local step 4: parameter 0 is +Inf; use a smaller step size or check the "+
		"scale of the "+
		"data")
	if taken != 4 {
		t.Errorf("took %d steps", taken)
	}

	w := []float64{math.NaN(), 0}
	taken, err = line(t, 0, StepSizeSchedule{ConstantStepSize: 0.1}).Run(w, 4, 1, 0, nil)
	check(err, 1, "training diverged at local step 1: the risk (mean loss) is NaN; use a smaller step size or check "+
		"the scale of the data")
	if taken != 0 || w[1] != 0 {
		t.Errorf("took %d steps from NaN, w = %v", taken, w)
	}
}

func TestRunRefuses(t *testing.T) {
	for _, test := range []struct {
		steps  int
		weight float64
		want   string
	}{
		{0, 1, "the number of local steps is 0, but must be at least 1"},
		{1, -1, "agent weight is -1, but must be finite and not negative"},
		{1, math.Inf(1), "agent weight is +Inf, but must be finite and not negative"},
	} {
		descent := line(t, 0, StepSizeSchedule{ConstantStepSize: 0.1})
		taken, err := descent.Run(make([]float64, 2), test.steps, test.weight, 0, nil)
		if err == nil || err.Error() != test.want || taken != 0 {
			t.Errorf("got %d, %v; want %s", taken, err, test.want)
		}
	}
}

func TestStepsDoNotAllocate(t *testing.T) {
	for _, a := range append(architectures(), wideArchitectures()...) {
		for _, batch := range []int{0, 1, 10, rowBlockSize, rowBlockSize + 1} {
			for _, noise := range []spec.GradientNoise{{}, {Law: spec.NoiseGaussian, Variance: 0.1},
				{Law: spec.NoiseLaplace, Variance: 0.1}} {
				rng := newRNG(14)
				d := Descent[float32]{Model: newModel[float32](t, a),
					Schedule: StepSizeSchedule{ConstantStepSize: 1e-3},
					Draws: &StepSampler[float32]{
						Data: randomSamples[float32](a, 40, rng), Rand: rng,
						GradientConfig: GradientConfig{BatchSize: batch, LocalStepProbability: 0.9, Noise: noise}}}
				w := randomVector[float32](a.ParameterCount(), 0.1, rng)
				if got := testing.AllocsPerRun(3, func() { // The function runs once before AllocsPerRun counts.
					if _, err := d.Run(w, 4, 1, 0, nil); err != nil {
						t.Fatal(err)
					}
				}); got != 0 {
					t.Errorf("%s, batch %d, %v: %v allocations in 4 steps", describe(a), batch, noise, got)
				}
			}
		}
	}
}
