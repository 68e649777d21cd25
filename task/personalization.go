package task

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// NewDittoStepRunner returns a runner for the local steps of a personal model v, for Ditto (Li et al. 2021) and
// fine-tuning:
//
//	v ← v − μ_t (ĝ_k(v) + λ(v − anchor))
//
// The step size μ_t follows the schedule, and t counts from offset + 1. The factors K·p_k and 1/E_k of the step size
// are omitted, because they balance agents in an average, and v is not part of an average. The parameter d is the
// descent of the agent's other steps, but with separate random draws. The parameter anchor is used only if λ, the
// parameter lambda, is not 0.
func NewDittoStepRunner[T learner.Float](d learner.Descent[T], lambda float64, anchor []T,
	offset uint64) LocalStepRunner[T] {
	d.NormalizesStepSize = false
	d.Correction.ProximalWeight, d.Correction.Anchor = lambda, anchor
	return LocalStepRunner[T]{Descent: d, StepWeight: 1, StepOffset: offset}
}

// HasPersonalPart reports whether each agent trains personal parameters: either some tensors of the model, or a whole
// personal model with the method Ditto.
func (p *CompiledTask[T]) HasPersonalPart() bool {
	return p.Task.Personal.UsesDitto || len(p.Task.Personal.PersonalTensors) > 0
}

// OwnSchema returns the layout of an agent's personal parameters: its personal tensors, or with the method Ditto the
// whole model. It returns nil if the task has no personal parameters.
func (p *CompiledTask[T]) OwnSchema() wire.TensorSchema {
	if p.Task.Personal.UsesDitto {
		return tensorSchemaOf[T](p.parameterSplit.SharedLayout)
	}
	return tensorSchemaOf[T](p.parameterSplit.OwnLayout)
}

// InitialOwnParameters returns the initial personal parameters from the initial model w_0, or nil if the task has no
// personal parameters.
func (p *CompiledTask[T]) InitialOwnParameters(seed uint64) []T {
	if !p.HasPersonalPart() {
		return nil
	}
	w := p.InitialParameters(seed)
	if p.Task.Personal.UsesDitto {
		return w
	}
	return p.OwnParameters(w)
}

// OwnParameters returns the agent's personal tensors, which it extracts from the vector w of all parameters. It returns
// nil if the task has none.
func (p *CompiledTask[T]) OwnParameters(w []T) []T {
	if p.parameterSplit.OwnElementCount() == 0 {
		return nil
	}
	own := make([]T, p.parameterSplit.OwnElementCount())
	learner.SplitParameters(nil, own, p.parameterSplit, w)
	return own
}

// SharedParameters returns the shared parameters, which it extracts from the vector w of all parameters. It may
// overwrite w.
func (p *CompiledTask[T]) SharedParameters(w []T) []T {
	if p.parameterSplit.OwnElementCount() == 0 {
		return w
	}
	shared := w[:p.parameterSplit.SharedElementCount()]
	learner.SplitParameters(shared, nil, p.parameterSplit, w)
	return shared
}

// AllParameters merges the shared parameters with the agent's personal tensors. It returns shared itself if the task
// has no personal tensors.
func (p *CompiledTask[T]) AllParameters(shared, own []T) []T {
	if p.parameterSplit.OwnElementCount() == 0 {
		return shared
	}
	w := make([]T, len(shared)+len(own))
	learner.JoinParameters(w, p.parameterSplit, shared, own)
	return w
}

// PredictionParameters returns the parameters with which an agent makes predictions, given its shared and personal
// parameters.
func (p *CompiledTask[T]) PredictionParameters(shared, own []T) []T {
	if p.Task.Personal.UsesDitto {
		return own
	}
	return p.AllParameters(shared, own)
}

// checkPersonalOptions validates the personalisation options except for the names of tensors.
func checkPersonalOptions(t *wire.Task) error {
	own, lambda := &t.Personal, t.Personal.DittoLambda
	switch {
	case own.UsesDitto && len(own.PersonalTensors) > 0:
		return errors.New("personal: tensors must be empty with ditto, which personalizes the whole model")
	case !(lambda >= 0) || math.IsInf(lambda, 1):
		return fmt.Errorf("ditto: lambda is %v, but must be finite and not negative", lambda)
	case t.FinetuneSteps > spec.MaxFinetuneSteps:
		return fmt.Errorf("finetune: %d steps exceed the limit of %d", t.FinetuneSteps, spec.MaxFinetuneSteps)
	case !own.UsesDitto && len(own.PersonalTensors) == 0:
		return nil
	case t.Training.ExchangeKind != spec.ExchangeParameters:
		return errors.New("personal: the task must exchange parameters instead of gradients")
	case t.Mixing.IntervalSteps > 0:
		return errors.New("personal: not supported with mixing")
	}
	return nil
}

// checkPersonalTensors checks that the personal tensors exist in the model and that some tensors remain shared.
func checkPersonalTensors(a learner.Architecture, own []string) error {
	switch parts := a.NewParameterSplit(own); {
	case len(own) > 0 && parts.OwnElementCount() == 0:
		return errors.New("personal: the model contains none of the personal tensors")
	case parts.SharedElementCount() == 0:
		return errors.New("personal: all tensors are personal, but at least one must be shared")
	}
	return nil
}

func (s *TaskStepRunner[T]) prepareDitto(j *LocalJob[T]) (err error) {
	s.dittoModel = slices.Clone(j.OwnParameters)
	s.dittoRunner, err = s.compiledTask.newDittoStepRunner(j.Samples, j.DittoRand,
		s.compiledTask.Task.Personal.DittoLambda,
		j.BaseParameters,
		j.StepOffset, j.ShouldStop)
	return err
}

// newDittoStepRunner returns a runner for the local steps of an agent's personal Ditto model.
func (p *CompiledTask[T]) newDittoStepRunner(samples *learner.Samples[T], rng *rand.Rand, lambda float64, anchor []T,
	offset uint64,
	stop func() bool) (*LocalStepRunner[T], error) {
	d, err := p.newDescent(samples, rng)
	if err != nil {
		return nil, err
	}
	s := NewDittoStepRunner(d, lambda, anchor, offset)
	s.ShouldStop = stop
	return &s, nil
}

// Finetune takes the task's fine-tuning steps and updates the whole model w in place. After an error w is invalid. The
// random source rng draws the batches, and offset is the step offset of the announcement. Finetune calls stop between
// steps; stop may be nil.
func (p *CompiledTask[T]) Finetune(w []T, samples *learner.Samples[T], rng *rand.Rand, offset uint64,
	stop func() bool) error {
	s, err := p.newDittoStepRunner(samples, rng, 0, nil, offset, stop)
	if err != nil {
		return err
	}
	return s.TakeLocalSteps(w, 1, uint64(p.Task.FinetuneSteps))
}

// TakeSteps takes the local steps from first to last, like [LocalStepRunner.TakeLocalSteps]. With the method Ditto it
// also takes the same steps of the personal model v_k. If these steps fail, the personal model is reset to the base
// model w_{i−1} and the round continues.
func (s *TaskStepRunner[T]) TakeSteps(x []T, first, last uint64) error {
	if err := s.TakeLocalSteps(x, first, last); err != nil || s.dittoModel == nil {
		return err
	}
	if err := s.dittoRunner.TakeLocalSteps(s.dittoModel, first, last); err != nil {
		s.dittoModel, s.dittoResetReason = append(s.dittoModel[:0], s.job.BaseParameters...), err
	}
	return nil
}

// ownParametersAfter returns the agent's personal parameters after the local steps, given the parameters x after these
// steps.
func (s *TaskStepRunner[T]) ownParametersAfter(x []T) []T {
	if s.dittoModel != nil {
		return s.dittoModel
	}
	return s.compiledTask.OwnParameters(x)
}
