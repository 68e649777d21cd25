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

// NewDittoStepRunner returns local steps of a model v that is an agent's own, of Ditto (Li et al. 2021) and of
// fine-tuning:
//
//	v ← v − μ_t (ĝ_k(v) + λ(v − anchor))
//
// μ_t is that of the schedule, and t counts from offset + 1. K·p_k and 1/E_k are left out: they balance agents in an
// average, and v is in none. d is the descent of the agent's other steps, with draws of v's own; anchor is read only
// where λ is not 0.
func NewDittoStepRunner[T learner.Float](d learner.Descent[T], lambda float64, anchor []T,
	offset uint64) LocalStepRunner[T] {
	d.NormalizesStepSize = false
	d.Correction.ProximalWeight, d.Correction.Anchor = lambda, anchor
	return LocalStepRunner[T]{Descent: d, StepWeight: 1, StepOffset: offset}
}

// HasPersonalPart reports whether an agent has anything of its own.
func (p *CompiledTask[T]) HasPersonalPart() bool {
	return p.Task.Personal.UsesDitto || len(p.Task.Personal.PersonalTensors) > 0
}

// OwnSchema returns the layout of what is an agent's own: its tensors, or with ditto the whole model; nil if nothing
// is.
func (p *CompiledTask[T]) OwnSchema() wire.TensorSchema {
	if p.Task.Personal.UsesDitto {
		return tensorSchemaOf[T](p.parameterSplit.SharedLayout)
	}
	return tensorSchemaOf[T](p.parameterSplit.OwnLayout)
}

// InitialOwnParameters returns the values that an agent's own begins with, those of w_0; nil if nothing is its own.
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

// OwnParameters returns the agent's own tensors of a vector of all parameters; nil if there are none.
func (p *CompiledTask[T]) OwnParameters(w []T) []T {
	if p.parameterSplit.OwnElementCount() == 0 {
		return nil
	}
	own := make([]T, p.parameterSplit.OwnElementCount())
	learner.SplitParameters(nil, own, p.parameterSplit, w)
	return own
}

// SharedParameters returns what agents share of a vector of all parameters, which may be overwritten.
func (p *CompiledTask[T]) SharedParameters(w []T) []T {
	if p.parameterSplit.OwnElementCount() == 0 {
		return w
	}
	shared := w[:p.parameterSplit.SharedElementCount()]
	learner.SplitParameters(shared, nil, p.parameterSplit, w)
	return shared
}

// AllParameters returns the vector of all parameters with which a round's local steps begin: the shared ones, with an
// agent's own tensors in their places. With nothing in them it is shared itself.
func (p *CompiledTask[T]) AllParameters(shared, own []T) []T {
	if p.parameterSplit.OwnElementCount() == 0 {
		return shared
	}
	w := make([]T, len(shared)+len(own))
	learner.JoinParameters(w, p.parameterSplit, shared, own)
	return w
}

// PredictionParameters returns the model that an agent predicts with, of the shared parameters and what is its own.
func (p *CompiledTask[T]) PredictionParameters(shared, own []T) []T {
	if p.Task.Personal.UsesDitto {
		return own
	}
	return p.AllParameters(shared, own)
}

// checkPersonalOptions checks what is the agents' own, but for the names of tensors.
func checkPersonalOptions(t *wire.Task) error {
	own, lambda := &t.Personal, t.Personal.DittoLambda
	switch {
	case own.UsesDitto && len(own.PersonalTensors) > 0:
		return errors.New("personal: tensors, and yet ditto has the whole model")
	case !(lambda >= 0) || math.IsInf(lambda, 1):
		return fmt.Errorf("ditto: lambda is %v; it must be finite and not negative", lambda)
	case t.FinetuneSteps > spec.MaxFinetuneSteps:
		return fmt.Errorf("finetune: %d steps, more than %d", t.FinetuneSteps, spec.MaxFinetuneSteps)
	case !own.UsesDitto && len(own.PersonalTensors) == 0:
		return nil
	case t.Training.ExchangeKind != spec.ExchangeParameters:
		return errors.New("personal: goes with the exchange of parameters, not of gradients")
	case t.Mixing.IntervalSteps > 0:
		return errors.New("personal: agents that mix have nothing of their own")
	}
	return nil
}

// checkPersonalTensors checks that a model has the tensors that are to be the agents' own, and others to share.
func checkPersonalTensors(a learner.Architecture, own []string) error {
	switch parts := a.NewParameterSplit(own); {
	case len(own) > 0 && parts.OwnElementCount() == 0:
		return errors.New("personal: the model has no such tensors")
	case parts.SharedElementCount() == 0:
		return errors.New("personal: nothing is left to share")
	}
	return nil
}

// prepareDitto prepares the steps of ditto.
func (s *TaskStepRunner[T]) prepareDitto(j *LocalJob[T]) (err error) {
	s.dittoModel = slices.Clone(j.OwnParameters)
	s.dittoRunner, err = s.compiledTask.newDittoStepRunner(j.Samples, j.DittoRand,
		s.compiledTask.Task.Personal.DittoLambda,
		j.BaseParameters,
		j.StepOffset, j.ShouldStop)
	return err
}

// newDittoStepRunner is NewDittoStepRunner on an agent's samples.
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

// Finetune takes the task's steps of fine-tuning from a whole model w, in place, on an agent's samples. rng draws them;
// offset is that of the announcement. stop is polled between steps; nil never stops. After an error w is of no use.
func (p *CompiledTask[T]) Finetune(w []T, samples *learner.Samples[T], rng *rand.Rand, offset uint64,
	stop func() bool) error {
	s, err := p.newDittoStepRunner(samples, rng, 0, nil, offset, stop)
	if err != nil {
		return err
	}
	return s.TakeLocalSteps(w, 1, uint64(p.Task.FinetuneSteps))
}

// TakeSteps takes local steps first to last as [LocalStepRunner.Take], and then as many of ditto. Of these no error
// stops the round: v_k begins anew as w_{i−1}.
func (s *TaskStepRunner[T]) TakeSteps(x []T, first, last uint64) error {
	if err := s.TakeLocalSteps(x, first, last); err != nil || s.dittoModel == nil {
		return err
	}
	if err := s.dittoRunner.TakeLocalSteps(s.dittoModel, first, last); err != nil {
		s.dittoModel, s.dittoResetReason = append(s.dittoModel[:0], s.job.BaseParameters...), err
	}
	return nil
}

// ownParametersAfter returns what is the agent's own after its local steps have come to x.
func (s *TaskStepRunner[T]) ownParametersAfter(x []T) []T {
	if s.dittoModel != nil {
		return s.dittoModel
	}
	return s.compiledTask.OwnParameters(x)
}
