package learner

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/spec"
)

// GradientConfig configures an agent's stochastic gradient, as any combination of the constructions in the 2nd-order
// paper. The zero value means the exact gradient.
type GradientConfig struct {
	// number of samples drawn for every step (2nd-order paper, equation (7)); 0 means that each step uses all stored
	// rows
	BatchSize int
	// LocalStepProbability is the probability δ_k with which agent k computes a local step; otherwise it skips the step
	// (2nd-order paper, equation (9)). Computed steps are scaled by 1/δ_k. The values 0 and 1 mean that the agent
	// computes all steps.
	LocalStepProbability float64
	Noise                spec.GradientNoise
}

// maxBatch is the maximum batch size that an agent accepts. It bounds the memory for a batch.
const maxBatch = 65536

// Validate returns an error for every invalid setting.
func (c GradientConfig) Validate() error {
	var errs []error
	if c.BatchSize < 0 || c.BatchSize > maxBatch {
		errs = append(errs, fmt.Errorf("batch size is %d, but must be between 1 and %d, or 0 for all rows",
			c.BatchSize, maxBatch))
	}
	if !(c.LocalStepProbability >= 0 && c.LocalStepProbability <= 1) {
		errs = append(errs, fmt.Errorf("step probability is %v, but must be above 0 and at most 1, or 0 to take "+
			"every step",
			c.LocalStepProbability))
	}
	var noise spec.ProblemList
	if c.Noise != (spec.GradientNoise{}) {
		c.Noise.Check(&noise, "gradient_noise")
	}
	return errors.Join(append(errs, noise.Err())...)
}

// StepSampler is the [StepDrawSource] of an agent. With only Data set, it yields the exact gradient.
//
// Every step draws random numbers from Rand in this order, whatever their values:
//
//  1. whether the step is computed: one Float64, if LocalStepProbability is neither 0 nor 1;
//  2. the samples: one IntN(rows) for each row of a mini-batch, or the stream's own draws; none if BatchSize is 0;
//  3. the noise of each coordinate: one NormFloat64 (Gaussian) or two ExpFloat64 (Laplace), if the variance is not 0.
//
// A step that is skipped at random also draws its samples and its noise. Therefore agents that differ only in
// LocalStepProbability draw the same samples and noise.
type StepSampler[T Float] struct {
	GradientConfig
	Data   *Samples[T]     // stored rows from which samples are drawn uniformly; nil if Stream is set
	Stream SampleStream[T] // source of new samples; nil if Data is set
	Rand   *rand.Rand      // random generator; may be nil if no random numbers are needed

	draw  StepDraw[T]
	batch Batch[T]
	noise []T
}

// Validate returns an error if the sampler is incompatible with m or has no samples. A [Descent] requires a valid
// StepSampler.
func (s *StepSampler[T]) Validate(m *Model[T]) error {
	switch {
	case (s.Data == nil) == (s.Stream == nil):
		return errors.New("a sampler requires either stored samples or a stream")
	case s.Data != nil && s.Data.Len() == 0:
		return errors.New("no samples to train on")
	case s.Data != nil && s.Data.FeatureCount() != m.arch.Inputs:
		return fmt.Errorf("samples have %d features, but the model has %d inputs", s.Data.FeatureCount(), m.arch.Inputs)
	case s.BatchSize == 0 && s.Stream != nil:
		return fmt.Errorf("batch size is 0, but must be between 1 and %d with a stream", maxBatch)
	}
	return s.GradientConfig.Validate()
}

// Next returns the random inputs of the next step. It draws random numbers in the order described at StepSampler.
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

// nextBatch returns the batch of one step from stored rows. It draws a new batch for every step, as in ch5, equation
// (5.66); equation (85) of the lecture does not index the batch by the step.
func (s *StepSampler[T]) nextBatch() Batch[T] {
	if s.BatchSize == 0 {
		if p := s.batch.tableReader; p == nil || p.samples != s.Data {
			s.batch = s.Data.All()
		}
		return s.batch
	}
	s.Data.DrawBatch(&s.batch, s.BatchSize, s.Rand)
	return s.batch
}

func (s *StepSampler[T]) fillBatchFromStream(inputs int) {
	if len(s.batch.Y) != s.BatchSize || len(s.batch.X) != s.BatchSize*inputs {
		s.batch.X, s.batch.Y = resizeSlice(s.batch.X, s.BatchSize*inputs), resizeSlice(s.batch.Y, s.BatchSize)
	}
	for i := range s.batch.Y {
		s.batch.Y[i] = s.Stream.Sample(s.batch.X[i*inputs:][:inputs:inputs])
	}
}
