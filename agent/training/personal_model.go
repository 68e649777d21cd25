package training

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// personalModelWrite describes the file write for personal parameters (see state.RetriedWrite).
const personalModelWrite = "save the personal parameters"

// personalModelStore stores the agent's personal parameters: either the model's tensors that are not shared, or the
// personal model v_k of the method ditto for agent k. Successive blocks train these parameters, and models for
// predictions contain them.
//
// It also keeps the parameters before the last round that has trained them. If a crash interrupts that round, the round
// starts from the earlier parameters again and computes bitwise the same result.
type personalModelStore struct {
	slots *state.FileSlots

	mu sync.Mutex
	personalState
}

// personalState is the content of the file with personal parameters. The zero value contains none.
type personalState struct {
	modelID personalModelID
	// last round that trained the parameters, if parametersBefore is set
	lastTrainedRound                  wire.RoundID
	parametersBefore, parametersAfter []float32 // personal parameters before and after lastTrainedRound
}

// personalModelID identifies the model to which personal parameters belong. If the task changes, the parameters are
// kept as long as the run and the tensors remain equal.
type personalModelID struct {
	run wire.RunID
	// hashes of the tensor schemas of the shared and personal parameters
	sharedSchemaHash, personalSchemaHash wire.Digest
}

func personalModelIDOf(run wire.RunID, p *task.CompiledTask[float32]) personalModelID {
	return personalModelID{run, p.UpdateSchema(wire.KindTraining).Hash(), p.OwnSchema().Hash()}
}

// parametersAtRoundStart returns the personal parameters at the start of a round, or nil if the model has none. For the
// round noRound it returns the current parameters. The caller must not modify the result.
func (k *personalModelStore) parametersAtRoundStart(key personalModelID, round wire.RoundID) []float32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.modelID != key:
		return nil
	case k.lastTrainedRound == round:
		return k.parametersBefore
	}
	return k.parametersAfter
}

// noRound is a round number that does not belong to any round.
const noRound wire.RoundID = math.MaxUint64

// saveTrainedParameters stores personal parameters after a round has trained them.
func (k *personalModelStore) saveTrainedParameters(s personalState) error {
	k.mu.Lock()
	k.personalState = s
	k.mu.Unlock()
	return k.save()
}

// save writes the personal parameters to disk.
func (k *personalModelStore) save() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := littleEndian.AppendUint64(nil, uint64(k.modelID.run))
	b = littleEndian.AppendUint64(b, uint64(k.lastTrainedRound))
	b = append(append(b, k.modelID.sharedSchemaHash[:]...), k.modelID.personalSchemaHash[:]...)
	return k.slots.Save(b, wire.AppendVector(nil, k.parametersBefore), wire.AppendVector(nil,
		k.parametersAfter))
}

// load reads the personal parameters from disk.
func (k *personalModelStore) load() error {
	return k.slots.Load(func(b []byte) error {
		const head = 16 + 2*len(wire.Digest{})
		if len(b) < head || (len(b)-head)%8 != 0 {
			return fmt.Errorf("the content of the file has %d bytes, but must contain a header of %d bytes and two "+
				"vectors of equal length", len(b), head)
		}
		s := personalState{modelID: personalModelID{run: wire.RunID(littleEndian.Uint64(b)),
			sharedSchemaHash:   wire.Digest(b[16:48]),
			personalSchemaHash: wire.Digest(b[48:head])}, lastTrainedRound: wire.RoundID(littleEndian.Uint64(b[8:]))}
		n := (len(b) - head) / 2
		s.parametersBefore, s.parametersAfter = make([]float32, n/4), make([]float32, n/4)
		err := errors.Join(wire.DecodeVector(s.parametersBefore, b[head:head+n]), wire.DecodeVector(s.parametersAfter,
			b[head+n:]))
		if err == nil {
			k.personalState = s
		}
		return err
	})
}

// setPersonalParameters sets the personal parameters at the start of the round. If no parameters are stored, it
// initialises them from the task's initial model w_0 or with an external program.
func (q *updateRequest) setPersonalParameters(ctx context.Context) (err error) {
	p, e := q.prepared.CompiledTask, &q.trainEffect
	if !p.HasPersonalPart() {
		return nil
	}
	own := q.training.personalModels.parametersAtRoundStart(personalModelIDOf(e.Position.Run, p), e.Position.Round)
	if own == nil {
		program, is := q.training.cfg.Trainer.(OpaqueTrainer)
		switch {
		case !q.prepared.AreRowsHiddenInTrainer():
			own = p.InitialOwnParameters(e.Announcement.Seed)
		case is:
			own, err = program.InitialPersonalParameters(ctx, p)
		default:
			err = ErrNoProgram
		}
		if err != nil {
			return err
		}
		q.reportPersonalReset(PersonalModelReset{Round: e.Position.Round, Parameters: len(own)})
	}
	q.ownParametersAtStart, q.baseParameters = own, p.AllParameters(q.baseParameters, own)
	return nil
}

// savePersonalParameters saves the personal parameters after the round. It must be called before the update is saved,
// so that the disk never contains an update without the personal parameters that belong to it.
func (q *updateRequest) savePersonalParameters(out *task.LocalOutcome[float32]) {
	if out.OwnParameters == nil {
		return
	}
	if out.DittoResetReason != nil {
		q.reportPersonalReset(PersonalModelReset{Round: q.trainEffect.Position.Round,
			Parameters: len(out.OwnParameters), Err: out.DittoResetReason})
	}
	k := &q.training.personalModels
	err := k.saveTrainedParameters(personalState{personalModelIDOf(q.trainEffect.Position.Run, q.prepared.CompiledTask),
		q.trainEffect.Position.Round, q.ownParametersAtStart, out.OwnParameters})
	q.training.core.Loop.RunOnLoop(func() {
		q.training.core.WriteRetrier.FinishWrite(state.RetriedWrite{Purpose: personalModelWrite, WriteFile: k.save},
			err)
	})
}

func (q *updateRequest) reportPersonalReset(e PersonalModelReset) {
	q.training.core.Loop.RunOnLoop(func() { q.training.core.Observer.Observe(e) })
}

// PredictionParameters returns the parameters for predictions, given the shared parameters of a model of the announced
// run. It returns nil if an external program trains the task and has no personal parameters yet.
func (t *TrainingManager) PredictionParameters(p *task.CompiledTask[float32], run wire.RunID,
	shared []float32) []float32 {
	if !p.HasPersonalPart() {
		return shared
	}
	own := t.personalModels.parametersAtRoundStart(personalModelIDOf(run, p), noRound)
	switch {
	case own != nil:
	case p.Task.Personal.UsesDitto:
		return shared // These parameters are used before the agent has trained personal parameters.
	case p.Task.External.IsEnabled():
		return nil
	default:
		own = p.InitialOwnParameters(t.core.LastAnnouncement.Announcement.Seed)
	}
	return p.PredictionParameters(shared, own)
}

// PersonalModelReset reports that personal parameters were set to initial values. Err is set if the local steps
// diverged, and nil if no parameters were stored.
type PersonalModelReset struct {
	Round      wire.RoundID
	Parameters int
	Err        error
}

// Describe implements observe.Event.
func (e PersonalModelReset) Describe(d *observe.EventDescription) {
	if e.Err != nil {
		d.Log(observe.Warn, "personal parameters have diverged and were reset", "round", e.Round,
			"parameters", e.Parameters, "err", e.Err, "remedy", "change task.personal.lambda or task.step_size")
		return
	}
	d.Log(observe.Info, "personal parameters initialised", "round", e.Round, "parameters", e.Parameters)
}
