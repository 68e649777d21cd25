package learner

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/spec"
)

// GradientConfig is how an agent makes its stochastic gradient: the constructions of 2nd-order, any of them together.
// The zero value is the exact gradient.
type GradientConfig struct {
	BatchSize int // B_k samples, drawn afresh for every step (2nd-order (7)); 0 = all stored rows
	// LocalStepProbability is δ_k, the probability that a local step happens; 0 and 1 = all do. It is per local step,
	// as
	// 2nd-order (9) is indexed by e, and the step is scaled by 1/δ_k. That an agent misses whole rounds is no matter of
	// its gradient: whoever picks the participants leaves it out, and then nothing is scaled.
	LocalStepProbability float64
	Noise                spec.GradientNoise
}

// maxBatch bounds the memory that a received batch size can claim.
const maxBatch = 65536

// Validate reports every setting that cannot work.
func (c GradientConfig) Validate() error {
	var errs []error
	if c.BatchSize < 0 || c.BatchSize > maxBatch {
		errs = append(errs, fmt.Errorf("batch size %d; 1 to %d, or 0 for all rows", c.BatchSize, maxBatch))
	}
	if !(c.LocalStepProbability >= 0 && c.LocalStepProbability <= 1) {
		errs = append(errs, fmt.Errorf("response probability %v; above 0 and at most 1, or 0 for always",
			c.LocalStepProbability))
	}
	var noise spec.ProblemList
	if c.Noise != (spec.GradientNoise{}) {
		c.Noise.Check(&noise, "gradient_noise")
	}
	return errors.Join(append(errs, noise.Err())...)
}

// StepSampler is the [StepDrawSource] of an agent. With nothing but Data it gives the exact gradient.
//
// Every step takes from Rand, in this order and whatever came out before:
//
//  1. the response, one Float64, if LocalStepProbability is neither 0 nor 1;
//  2. the samples: an IntN(rows) for each row of a mini-batch, or the stream's own draws; nothing if BatchSize is 0;
//  3. the noise, coordinate by coordinate: a NormFloat64 (Gaussian) or two ExpFloat64 (Laplace), if it has a variance.
//
// A straggling step draws its samples and its noise too, so that agents that differ in LocalStepProbability alone see
// the same ones.
type StepSampler[T Float] struct {
	GradientConfig
	Data   *Samples[T]     // stored rows, from which samples are drawn uniformly with replacement; or
	Stream SampleStream[T] // fresh samples
	Rand   *rand.Rand      // may be nil if nothing is drawn

	draw  StepDraw[T]
	batch Batch[T]
	noise []T
}

// Validate reports what cannot work with m, or that there are no samples. A [Descent] expects a valid StepSampler.
func (s *StepSampler[T]) Validate(m *Model[T]) error {
	switch {
	case (s.Data == nil) == (s.Stream == nil):
		return errors.New("a sampler takes either stored samples or a stream")
	case s.Data != nil && s.Data.Len() == 0:
		return errors.New("no samples to learn from")
	case s.Data != nil && s.Data.FeatureCount() != m.arch.Inputs:
		return fmt.Errorf("samples with %d features for a model with %d inputs", s.Data.FeatureCount(), m.arch.Inputs)
	case s.BatchSize == 0 && s.Stream != nil:
		return fmt.Errorf("batch size 0 with a stream, which has no end; 1 to %d", maxBatch)
	}
	return s.GradientConfig.Validate()
}

// Next is the next draw, in the order that is written above.
func (s *StepSampler[T]) Next(m *Model[T]) *StepDraw[T] {
	d := &s.draw
	d.GradientScale = 1
	if s.LocalStepProbability > 0 && s.LocalStepProbability < 1 {
		d.GradientScale = 0
		if s.Rand.Float64() < s.LocalStepProbability {
			d.GradientScale = 1 / s.LocalStepProbability
		}
	}
	switch {
	case s.BatchSize == 1 && s.Data != nil && s.Data.table == nil:
		x, y := s.Data.x, s.Data.y
		i := s.Rand.IntN(len(y))
		d.Batch.X, d.Batch.Y = x[i*s.Data.featureCount:][:s.Data.featureCount], y[i:][:1]
	case s.Stream != nil:
		s.fillBatchFromStream(m.arch.Inputs)
		d.Batch.X, d.Batch.Y = s.batch.X, s.batch.Y
	default:
		d.Batch = s.nextBatch()
	}
	d.Noise = nil
	if s.Noise.Variance != 0 {
		s.noise = resizeSlice(s.noise, m.parameterCount)
		drawNoise(s.Noise, s.noise, s.Rand)
		d.Noise = s.noise
	}
	return d
}

// nextBatch is the batch of one step, of stored rows. Every step has its own: ch5 (5.66), where lecture (85) has no
// index of the step.
func (s *StepSampler[T]) nextBatch() Batch[T] {
	if s.BatchSize == 0 {
		if p := s.batch.tableReader; p == nil || p.samples != s.Data { // else its memory is used again
			s.batch = s.Data.All()
		}
		return s.batch
	}
	s.Data.DrawBatch(&s.batch, s.BatchSize, s.Rand)
	return s.batch
}

// fillBatchFromStream fills the batch of one step from the stream.
func (s *StepSampler[T]) fillBatchFromStream(inputs int) {
	if len(s.batch.Y) != s.BatchSize || len(s.batch.X) != s.BatchSize*inputs {
		s.batch.X, s.batch.Y = resizeSlice(s.batch.X, s.BatchSize*inputs), resizeSlice(s.batch.Y, s.BatchSize)
	}
	for i := range s.batch.Y {
		s.batch.Y[i] = s.Stream.Sample(s.batch.X[i*inputs:][:inputs:inputs])
	}
}
