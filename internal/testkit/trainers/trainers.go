// Package trainers is a conformance test suite for implementations of training.Trainer.
package trainers

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// Traits describes how a trainer under test may differ from the built-in trainer.
type Traits struct {
	StepTime time.Duration // time that one local step takes
	// ReportsFalseNumbers is true if the trainer may report numbers that do not match its data, as a malicious trainer
	// does.
	ReportsFalseNumbers bool
}

// steps is the number of local steps that each test takes.
const steps = 6

// Suite runs all conformance tests inside a synctest bubble. make returns a new trainer for each test.
func Suite(t *testing.T, traits Traits, make func() training.Trainer) {
	for name, of := range tasks() {
		t.Run(name, func(t *testing.T) {
			for _, tt := range []struct {
				name string
				try  func(s *trainerTest)
			}{
				{"its update", (*trainerTest).testUpdateSize},
				{"step by step", (*trainerTest).testStepByStep},
				{"again", (*trainerTest).testRepeat},
				{"an end before the first step", (*trainerTest).testEndBeforeStart},
				{"an end on the way", (*trainerTest).testEndWithinSteps},
				{"moments of its data", (*trainerTest).testMoments},
			} {
				t.Run(tt.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						tt.try(&trainerTest{T: t, Traits: traits, trainer: make(), problem: compile(t, of)})
					})
				})
			}
		})
	}
}

// tasks returns the tasks of the test cases by name: one task for each kind of exchange, and one task with mixing
// between neighbours.
func tasks() map[string]wire.Task {
	of := func(change func(t *wire.Task)) wire.Task {
		t := wire.Task{
			Name: "a task", Features: []string{"a", "b"}, TargetColumn: "y",
			Model: wire.ModelSpec{HiddenUnits: []uint32{3}, Outputs: 1, Activation: spec.ActivationTanh,
				Risk:    spec.LossSquared,
				HasBias: true},
			Training: wire.TrainingSettings{ExchangeKind: spec.ExchangeParameters, BatchSize: 2, StepSize: 0.1,
				StepTimeBudgetMillis: 3000,
				MinLocalSteps:        1, MaxLocalSteps: steps},
		}
		change(&t)
		return t
	}
	return map[string]wire.Task{
		"parameters": of(func(t *wire.Task) { t.Training.NormalizesStepSize = true }),
		"a gradient": of(func(t *wire.Task) {
			t.Training.ExchangeKind, t.Training.MaxLocalSteps = spec.ExchangeGradient,
				1
		}),
		"a block with neighbours": of(func(t *wire.Task) {
			t.Mixing = wire.MixingSettings{IntervalSteps: 1, SnapshotRetryMillis: 1000, LateSnapshotMillis: 1000,
				SnapshotCodec: spec.CodecRaw}
		}),
	}
}

func compile(t *testing.T, of wire.Task) *task.CompiledTask[float32] {
	t.Helper()
	p, err := task.Compile[float32](of)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// trainerTest holds the state of one test: the trainer and the compiled task.
type trainerTest struct {
	*testing.T
	Traits
	trainer training.Trainer
	problem *task.CompiledTask[float32]
}

func (s *trainerTest) rows() *learner.Samples[float32] {
	return learner.NewSamples(2, []float32{1, 0, 0, 1, 1, 1, 2, 1, 1, 2}, []float32{2, -1, 1, 3, 0})
}

// maxLocalSteps returns the maximum number of local steps of the task.
func (s *trainerTest) maxLocalSteps() uint64 { return uint64(s.problem.Task.Training.MaxLocalSteps) }

// beginBlock starts a new block of local steps. It returns the block, the base model and a copy of the base model that
// the steps will update.
func (s *trainerTest) beginBlock(ctx context.Context) (b training.LocalStepBlock, base, x []float32) {
	s.Helper()
	base = s.problem.InitialParameters(3)
	b, err := s.trainer.NewBlock(ctx, 1, s.problem, task.LocalJob[float32]{BaseParameters: base, Samples: s.rows(),
		StepWeight: 1,
		Steps:      int(s.maxLocalSteps()), Rand: rand.New(rand.NewPCG(1, 2))})
	if err != nil {
		s.Fatal(err)
	}
	return b, base, slices.Clone(base)
}

// takeLocalSteps takes the local steps first to last of block b on the parameters x. It reports an error if they do not
// take exactly StepTime each.
func (s *trainerTest) takeLocalSteps(b training.LocalStepBlock, x []float32, first, last uint64) {
	s.Helper()
	began := time.Now()
	if err := b.TakeSteps(x, first, last); err != nil {
		s.Fatal(err)
	}
	if want, took := time.Duration(last-first+1)*s.StepTime, time.Since(began); took != want {
		s.Errorf("%d steps took %v, want %v", last-first+1, took, want)
	}
}

// checkedOutcome returns the outcome of a block. It fails the test if the size of the update, the number of steps or a
// risk is wrong.
func (s *trainerTest) checkedOutcome(b training.LocalStepBlock, base, x []float32,
	steps uint64) task.LocalOutcome[float32] {
	s.Helper()
	before := slices.Clone(base)
	out, err := b.OutcomeFromBase(base, x)
	if err != nil {
		s.Fatal(err)
	}
	if len(out.UpdateVector) != len(base) || out.StepsTaken != int(steps) {
		s.Errorf("an update of %d elements after %d steps, want %d and %d", len(out.UpdateVector), out.StepsTaken,
			len(base),
			steps)
	}
	if r := out.RiskBefore + out.RiskAfter; r-r != 0 {
		s.Errorf("the risks are %v and %v", out.RiskBefore, out.RiskAfter)
	}
	if !slices.Equal(base, before) {
		s.Error("the base model was changed")
	}
	return out
}

// testUpdateSize checks that the update has as many elements as the model and results from the requested number of
// steps.
func (s *trainerTest) testUpdateSize() {
	b, base, x := s.beginBlock(s.Context())
	s.takeLocalSteps(b, x, 1, s.maxLocalSteps())
	if gradient := s.problem.Task.Training.ExchangeKind == spec.ExchangeGradient; slices.Equal(base, x) != gradient {
		s.Errorf("after the steps x is %v, and the base %v", x, base)
	}
	s.checkedOutcome(b, base, x, s.maxLocalSteps())
	// With neighbours, a block has several outcomes, and the trainer must restart the step count after each outcome.
	if s.problem.Task.Mixing.IntervalSteps > 0 {
		s.takeLocalSteps(b, x, s.maxLocalSteps()+1, s.maxLocalSteps()+2)
		s.checkedOutcome(b, x, x, 2)
	}
}

// testStepByStep checks that taking local steps one at a time gives the same result as taking all steps at once.
// testStepByStep is skipped for tasks without mixing.
func (s *trainerTest) testStepByStep() {
	if s.problem.Task.Mixing.IntervalSteps == 0 {
		return
	}
	all, base, x := s.beginBlock(s.Context())
	one, _, y := s.beginBlock(s.Context())
	s.takeLocalSteps(all, x, 1, s.maxLocalSteps())
	for step := range s.maxLocalSteps() {
		s.takeLocalSteps(one, y, step+1, step+1)
	}
	s.compareOutcomes(s.checkedOutcome(all, base, x, s.maxLocalSteps()), s.checkedOutcome(one, base, y,
		s.maxLocalSteps()))
}

// testRepeat checks that the trainer and the built-in trainer return the same update for the same block. A trainer that
// reports false numbers is run twice and compared with itself.
func (s *trainerTest) testRepeat() {
	first, base, x := s.beginBlock(s.Context())
	s.takeLocalSteps(first, x, 1, s.maxLocalSteps())
	if !s.ReportsFalseNumbers {
		s.trainer, s.StepTime = training.LocalTrainer{}, 0
	}
	second, _, y := s.beginBlock(s.Context())
	s.takeLocalSteps(second, y, 1, s.maxLocalSteps())
	s.compareOutcomes(s.checkedOutcome(first, base, x, s.maxLocalSteps()), s.checkedOutcome(second, base, y,
		s.maxLocalSteps()))
}

func (s *trainerTest) compareOutcomes(a, b task.LocalOutcome[float32]) {
	s.Helper()
	equal := func(a, b float32) bool { return a == b || a != a && b != b }
	if !slices.EqualFunc(a.UpdateVector, b.UpdateVector,
		equal) || a.RiskBefore != b.RiskBefore || a.RiskAfter != b.RiskAfter {
		s.Errorf("%+v, and %+v", a, b)
	}
}

// testEndBeforeStart checks that a block whose context is already cancelled takes no local step and returns at once.
func (s *trainerTest) testEndBeforeStart() {
	ctx, cancel := context.WithCancel(s.Context())
	b, base, x := s.beginBlock(ctx)
	cancel()
	began := time.Now()
	err := b.TakeSteps(x, 1, s.maxLocalSteps())
	if took := time.Since(began); took != 0 || !slices.Equal(x, base) {
		s.Errorf("it took %v; x is %v, and the base %v", took, x, base)
	}
	s.checkStoppedBlock(b, base, x, err, 0)
}

// testEndWithinSteps checks that the trainer starts no local step after the deadline of its context.
func (s *trainerTest) testEndWithinSteps() {
	within := 2*s.StepTime + s.StepTime/2
	ctx, cancel := context.WithTimeout(s.Context(), max(within, 1))
	defer cancel()
	b, base, x := s.beginBlock(ctx)
	began := time.Now()
	var err error
	if s.problem.Task.Mixing.IntervalSteps > 0 {
		for step := uint64(1); step <= s.maxLocalSteps() && err == nil; step++ {
			err = b.TakeSteps(x, step, step)
		}
	} else {
		err = b.TakeSteps(x, 1, s.maxLocalSteps())
	}
	if took := time.Since(began); took > within+s.StepTime {
		s.Errorf("it took %v, ended after %v", took, within)
	}
	s.checkStoppedBlock(b, base, x, err, s.maxLocalSteps())
}

// checkStoppedBlock checks the result of an interrupted block: either the error ErrStoppedMidBlock, or an update from
// no more than `most` local steps.
func (s *trainerTest) checkStoppedBlock(b training.LocalStepBlock, base, x []float32, err error, most uint64) {
	s.Helper()
	if errors.Is(err, task.ErrStoppedMidBlock) {
		return
	}
	if err != nil {
		s.Fatal(err)
	}
	if s.problem.Task.Training.ExchangeKind == spec.ExchangeGradient {
		return // A gradient is computed in one step, so it cannot be interrupted.
	}
	out, err := b.OutcomeFromBase(base, x)
	if !errors.Is(err,
		task.ErrNoSteps) && (err != nil || out.StepsTaken > int(most) || len(out.UpdateVector) != len(base)) {
		s.Errorf("%+v, %v; want at most %d steps", out, err, most)
	}
}

// testMoments checks the size of the column moments that the trainer returns. It also compares the moments with the
// data unless the trainer reports false numbers.
func (s *trainerTest) testMoments() {
	rows := s.rows()
	v, err := s.trainer.Moments(s.problem, rows)
	want := learner.ComputeColumnMoments(rows).Vector()
	if err != nil || len(v) != len(want) || !s.ReportsFalseNumbers && !slices.Equal(v, want) {
		s.Errorf("moments %v, %v; want %v", v, err, want)
	}
	if n := s.trainer.ReportedRowCount(rows); n == 0 || !s.ReportsFalseNumbers && n != 5 {
		s.Errorf("%d rows, want 5", n)
	} else if err == nil && v[0] != float64(n) {
		s.Errorf("it says %d rows in its hello and %v in its moments: its lies are refused", n, v[0])
	}
}
