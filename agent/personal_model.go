package agent

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

// personalModelStore keeps what of a model is this agent's own: its tensors, or v_k of ditto. Blocks train it, one
// after another, and models to predict with are made with it.
//
// It knows what its own was before the newest round that trained it, too: work that a crash has cut short, and is done
// again, begins there and has the same bits.
type personalModelStore struct {
	slots *state.Slots

	mu sync.Mutex
	personalState
}

// personalState is what is kept; its zero value, of no run, that nothing is.
type personalState struct {
	key                               personalKey
	round                             wire.RoundID // that trained it; meaningful where before is not nil
	parametersBefore, parametersAfter []float32
}

// personalKey says of what a state is. Another task of the run with the same tensors goes on from it.
type personalKey struct {
	run                                  wire.RunID
	sharedSchemaHash, personalSchemaHash wire.Digest // of the schemas
}

func keyOf(run wire.RunID, p *task.CompiledTask[float32]) personalKey {
	return personalKey{run, p.Schema(wire.KindTraining).Hash(), p.OwnSchema().Hash()}
}

// valuesAtStart returns what is the agent's own at the beginning of a round, which nobody changes; nil if it is to
// begin. Of round noRound it is what there is by now.
func (k *personalModelStore) valuesAtStart(key personalKey, round wire.RoundID) []float32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.key != key:
		return nil
	case k.round == round:
		return k.parametersBefore
	}
	return k.parametersAfter
}

// noRound is a round that is none.
const noRound wire.RoundID = math.MaxUint64

// saveTrained takes what a round has made of it, and makes it durable.
func (k *personalModelStore) saveTrained(s personalState) error {
	k.mu.Lock()
	k.personalState = s
	k.mu.Unlock()
	return k.save()
}

// save makes the newest durable.
func (k *personalModelStore) save() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := littleEndian.AppendUint64(nil, uint64(k.key.run))
	b = littleEndian.AppendUint64(b, uint64(k.round))
	b = append(append(b, k.key.sharedSchemaHash[:]...), k.key.personalSchemaHash[:]...)
	return k.slots.Save(b, wire.AppendVector(nil, k.parametersBefore), wire.AppendVector(nil,
		k.parametersAfter))
}

// load reads what an earlier process has kept.
func (k *personalModelStore) load() error {
	return k.slots.Load(func(b []byte) error {
		const head = 16 + 2*len(wire.Digest{})
		if len(b) < head || (len(b)-head)%8 != 0 {
			return fmt.Errorf("%d bytes, want %d and two vectors", len(b), head)
		}
		s := personalState{key: personalKey{run: wire.RunID(littleEndian.Uint64(b)),
			sharedSchemaHash:   wire.Digest(b[16:48]),
			personalSchemaHash: wire.Digest(b[48:head])}, round: wire.RoundID(littleEndian.Uint64(b[8:]))}
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

// setPersonalParameters sets the agent's own parameters with which the round begins. If none are stored for this run
// and these tensors, they are initialised.
func (q *updateRequest) setPersonalParameters(ctx context.Context) (err error) {
	p := q.p.CompiledTask
	if !p.HasPersonalPart() {
		return nil
	}
	q.ownParametersAtStart = q.a.personal.valuesAtStart(keyOf(q.trainEffect.Position.Run, p),
		q.trainEffect.Position.Round)
	if q.ownParametersAtStart == nil {
		if q.ownParametersAtStart, err = q.initialPersonalParameters(ctx); err != nil {
			return err
		}
		q.reportPersonalReset(PersonalModelReset{Round: q.trainEffect.Position.Round,
			Parameters: len(q.ownParametersAtStart)})
	}
	q.base = p.AllParameters(q.base, q.ownParametersAtStart)
	return nil
}

// initialPersonalParameters is what the agent's own begins with: the values of the task's w_0, or those that a program
// has.
func (q *updateRequest) initialPersonalParameters(ctx context.Context) ([]float32, error) {
	if !q.p.RowsHiddenInTrainer() {
		return q.p.CompiledTask.InitialOwn(q.trainEffect.Announcement.Seed), nil
	}
	by, err := q.a.opaqueTrainer()
	if err != nil {
		return nil, err
	}
	return by.InitialOwn(ctx, q.p.CompiledTask)
}

// savePersonalParameters saves the agent's own parameters after the round. This happens before the update is saved, so
// that an update is never on disk without them.
func (q *updateRequest) savePersonalParameters(out *task.LocalOutcome[float32]) {
	if out.OwnParameters == nil {
		return
	}
	if out.OwnResetReason != nil {
		q.reportPersonalReset(PersonalModelReset{Round: q.trainEffect.Position.Round,
			Parameters: len(out.OwnParameters),
			Err:        out.OwnResetReason})
	}
	k := &q.a.personal
	err := k.saveTrained(personalState{keyOf(q.trainEffect.Position.Run, q.p.CompiledTask),
		q.trainEffect.Position.Round,
		q.ownParametersAtStart,
		out.OwnParameters})
	q.a.core.Loop.RunOnLoop(func() {
		q.a.core.Writes.Finish(state.Write{Purpose: personalModelWrite, Do: k.save},
			err)
	})
}

func (q *updateRequest) reportPersonalReset(f PersonalModelReset) {
	q.a.core.Loop.RunOnLoop(func() { q.a.cfg.Observer.Observe(f) })
}

// predictionParameters returns the model that the device predicts with, of a model of the run that is announced; nil of
// a program's until that has values of its own.
func (a *Agent) predictionParameters(p *task.CompiledTask[float32], run wire.RunID, shared []float32) []float32 {
	if !p.HasPersonalPart() {
		return shared
	}
	own := a.personal.valuesAtStart(keyOf(run, p), noRound)
	switch {
	case own != nil:
	case p.Task.Personal.Ditto:
		return shared // until the agent has trained
	case p.Task.External.Enabled():
		return nil
	default:
		own = p.InitialOwn(a.core.Announcement.Announcement.Seed)
	}
	return p.PredictionModel(shared, own)
}

// PersonalModelReset: the agent's personal parameters were set to their initial values. Without Err, none are stored
// for this run and these tensors. With Err, the personal local steps have diverged.
type PersonalModelReset struct {
	Round      wire.RoundID
	Parameters int
	Err        error
}

// Describe implements observe.Event.
func (e PersonalModelReset) Describe(d *observe.Description) {
	if e.Err != nil {
		d.Log(observe.Warn, "personal parameters have diverged and were reset", "round", e.Round,
			"parameters", e.Parameters, "err", e.Err, "remedy", "change task.personal.lambda or task.step_size")
		return
	}
	d.Log(observe.Info, "personal parameters initialised", "round", e.Round, "parameters", e.Parameters)
}
