package agent

import (
	"context"
	"errors"
	"time"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// start runs work beside the owner, one job at a time, and then the function that
// it returns in the owner's goroutine.
func (a *Agent) start(work func() func()) {
	a.jobs.Do(func() {
		if a.owner.Context().Err() == nil {
			a.owner.Tell(work())
		}
	})
}

// takeBase reads the base model that came, or tells that it could not be had.
func (a *Agent) takeBase(ref wire.BlobRef, data transfer.Storage, err error) {
	if err != nil {
		a.step(round.Fetched{Base: ref.Hash, Failed: true})
		return
	}
	want := a.prepared.problem.Model.Architecture().Params()
	a.start(func() func() {
		w := make([]float32, ref.Length/4)
		err := readBlob(ref, data, func(at int,
			piece []byte) error {
			return wire.DecodeVector(w[at/4:(at+len(piece))/4], piece)
		})
		if err == nil && len(w) != want {
			err = errors.New("the model has another size than the task's")
		}
		return func() {
			if ref.Hash != a.fetching {
				return // the round is over
			}
			if err != nil {
				a.cfg.Logger.Warn("a model that was fetched cannot be used", "hash", ref.Hash.Topic(), "err", err)
			}
			a.base = w
			a.step(round.Fetched{Base: ref.Hash, Failed: err != nil})
		}
	})
}

// prepare holds the local data against a task that came, or tells that it
// could not be had.
func (a *Agent) prepare(ref wire.BlobRef, data transfer.Storage, err error) {
	if err != nil {
		a.step(round.Prepared{Task: ref.Hash, Unfit: wire.DeclineFetch})
		return
	}
	began := a.owner.Now()
	a.start(func() func() {
		var blob []byte
		if err := readBlob(ref, data,
			func(_ int, piece []byte) error { blob = append(blob, piece...); return nil }); err != nil {
			return func() {
				took := a.owner.Now().Sub(began)
				a.fitted(ref.Hash, nil, nil, wire.DeclineFetch, DataLoaded{Problem: err, Took: took})
			}
		}
		return a.fit(ref.Hash, blob, began)
	})
}

// fit reads the data that a task asks for, and returns what the owner makes of it.
func (a *Agent) fit(hash wire.Digest, blob []byte, began time.Time) func() {
	p, unfit, fact := a.loadTask(blob)
	fact.Took = a.owner.Now().Sub(began)
	return func() { a.fitted(hash, blob, p, unfit, fact) }
}

// misfit is a task that the local data do not fit.
type misfit struct {
	task    wire.Digest
	blob    []byte
	problem string
	again   time.Time // when the data are looked at once more
}

// mendEvery is the time after which data that do not fit are looked at again: a file may be written, mended or mounted,
// and may get more rows.
const mendEvery = 10 * time.Minute

// fitted tells whether the local data fit a task. The same misfit is told once.
func (a *Agent) fitted(hash wire.Digest, blob []byte, p *prepared, unfit wire.DeclineReason, fact DataLoaded) {
	if hash != a.wanted {
		return // another task has come meanwhile
	}
	before := a.misfit
	a.misfit = nil
	if unfit == wire.DeclineBadData || unfit == wire.DeclineTooFewRows {
		a.misfit = &misfit{hash, blob, fact.Problem.Error(), a.owner.Now().Add(mendEvery)}
		if before != nil && before.task == hash && before.problem == a.misfit.problem {
			return
		}
	}
	ev := round.Prepared{Task: hash, Unfit: unfit}
	if p != nil {
		a.prepared, fact.Rows = p, p.samples.Len()
		ev.Statistics = uint32(p.problem.Schema(wire.KindStatistics).Bytes())
		ev.Samples = uint64(fact.Rows)
	}
	a.cfg.Observer.Observe(fact)
	a.step(ev)
}

// mend looks at data again that did not fit.
func (a *Agent) mend(now time.Time) {
	m := a.misfit
	if m == nil || now.Before(m.again) {
		return
	}
	m.again = now.Add(mendEvery)
	a.start(func() func() { return a.fit(m.task, m.blob, now) })
}

func (a *Agent) loadTask(blob []byte) (*prepared, wire.DeclineReason, DataLoaded) {
	t, err := wire.DecodeTask(blob)
	if err != nil {
		return nil, wire.DeclineUnsupported, DataLoaded{Problem: err}
	}
	fact := DataLoaded{Task: t.Name}
	problem, err := task.Compile[float32](t)
	if err != nil {
		fact.Problem = err
		return nil, wire.DeclineUnsupported, fact
	}
	samples, err := a.cfg.Data.Load(t.Features, t.Target)
	if err == nil {
		err = problem.Prepare(samples)
	}
	if err != nil {
		fact.Problem = err
		return nil, wire.DeclineBadData, fact
	}
	if least := max(t.MinSamples, a.cfg.MinRows); uint64(samples.Len()) < least {
		fact.Problem = &tooFewError{samples.Len(), least}
		return nil, wire.DeclineTooFewRows, fact
	}
	return &prepared{problem: problem, samples: samples}, 0, fact
}

// train computes the update of a round beside the owner. Work that release or a
// stop of the agent cuts short is thrown away.
func (a *Agent) train(e round.Train) {
	if e.Announcement.Kind == wire.KindTraining {
		a.cfg.Observer.Observe(ModelFetched{Version: e.Announcement.Version, Bytes: int(e.Announcement.Base.Length)})
	}
	p, base, perStep := a.prepared, a.base, a.pace.PerStep()
	if a.cfg.StepTime > 0 {
		perStep = a.cfg.StepTime
	}
	a.judge()
	sizing := p.problem.Sizing()
	steps, why := sizing.LocalSteps(perStep)
	if a.cfg.Device != nil && a.verdict.May() { // a round that has begun is finished
		steps, why = sizing.Ease(steps, why, a.verdict.Share)
	}
	ctx, cease := context.WithCancel(a.owner.Context())
	a.cease = cease
	q := &ask{a: a, ctx: ctx, cease: cease, e: e, p: p, base: base, steps: steps, why: why, began: a.owner.Now()}
	switch {
	case e.Announcement.Kind == wire.KindStatistics:
		q.sum()
	case p.problem.Task.Mixing.Endless:
		a.mixOn(q)
	default:
		q.train()
	}
}

// trained goes on with the update.
func (a *Agent) trained(e round.Train, u *update, fact Trained, err error) {
	if fact.LocalSteps > 0 {
		a.pace.Observe(fact.LocalSteps, fact.Took)
		fact.StepTime = a.pace.PerStep()
		if a.cfg.StepTime > 0 {
			fact.StepTime = a.cfg.StepTime
		}
		u.StepTime = fact.StepTime.Seconds()
		a.cfg.Observer.Observe(fact)
	}
	if err != nil {
		a.cfg.Observer.Observe(TrainingFailed{e.Order.Round, err})
		a.step(round.Trained{Run: e.Order.Run, Round: e.Order.Round, Failed: failure(err)})
		return
	}
	a.ready = u
	a.step(round.Trained{Run: e.Order.Run, Round: e.Order.Round, Update: u.Payload.Hash})
}

func failure(err error) wire.DeclineReason {
	switch d := (*learner.DivergenceError)(nil); {
	case errors.As(err, &d):
		return wire.DeclineDiverged
	case errors.Is(err, task.ErrNoSteps), errors.Is(err, task.ErrStopped):
		return wire.DeclineNoTime
	}
	return wire.DeclineBadData
}
