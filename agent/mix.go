package agent

import (
	"context"
	"errors"
	"time"

	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// errNoMesh is the failure of an agent that is to mix and was not told how.
var errNoMesh = errors.New("the task has agents mix, and this one has no way to neighbours: configure d2d")

// mix computes the update of a round in which agents mix. The goroutine of the
// block outlives the update: neighbours may need this agent's snapshots until
// the round is over.
func (a *Agent) mix(ctx context.Context, cease func(), e round.Train, p *prepared, base []float32, steps int,
	why learner.SizingReason) {
	began := time.Now()
	tell := func(u *update, fact Trained, err error) {
		fact.Sizing = why
		a.tellTrained(ctx, cease, e, u, fact, err)
	}
	timely, cancel := inTime(ctx, e.Deadline)
	block, err := a.cfg.Trainer.Block(timely, e.Block, p.problem, task.Job[float32]{
		Base: base, Samples: p.samples, Weight: e.Weight, Offset: e.Announcement.Offset, Steps: steps,
		Rand: task.Source(e.Announcement.Seed, e.Order.Round, task.Stream(a.cfg.ID)),
	})
	if err == nil && a.mesh.private == nil && len(e.Peers) > 0 {
		err = errNoMesh
	}
	if err != nil {
		cancel()
		a.owner.Go(func() { tell(&update{}, Trained{}, err) })
		return
	}
	m := a.mesh
	before, over := m.block, make(chan struct{}) // the last block's goroutine has been told to end
	m.block = over
	a.owner.Go(func() {
		defer close(over)
		defer cancel()
		<-before
		defer a.watchdog.watch(ctx)()
		b, err := m.newMixing(e, &p.problem.Task, block, base, false)
		b.answer = func(s d2d.Stats, err error) {
			u, fact := a.newUpdate(e, p), Trained{Took: b.computed, Mixed: &s, MixedFor: time.Since(began)}
			if err == nil {
				err = u.takeOutcome(block, base, b.x, &fact, e.Announcement.Schema)
			}
			if err == nil && ctx.Err() == nil {
				a.save(ctx, u)
			}
			tell(u, fact, err)
		}
		if err != nil {
			b.answer(d2d.Stats{}, err)
		} else if err = b.work(ctx); err != nil {
			b.answer(b.machine.Stats(), err)
		}
	})
}

// tellTrained has the owner go on with an update, unless its round is over.
func (a *Agent) tellTrained(ctx context.Context, cease func(), e round.Train, u *update, fact Trained, err error) {
	fact.Round, fact.Version = e.Order.Round, e.Announcement.Version
	_ = a.owner.TellWithin(ctx, func() { // else the round is over, and nobody asks
		if ctx.Err() == nil {
			if err != nil {
				cease()
			}
			a.trained(e, u, fact, err)
		}
	})
}

// newUpdate is an update without its vector.
func (a *Agent) newUpdate(e round.Train, p *prepared) *update {
	return &update{run: e.Order.Run, round: e.Order.Round, Update: wire.Update{
		Kind: e.Announcement.Kind, Base: e.Announcement.Base.Hash, Samples: uint64(p.samples.Len()),
	}}
}

// takeOutcome makes what a block has come to the update's, as a change of base.
func (u *update) takeOutcome(b Block, base, x []float32, fact *Trained, schema wire.Digest) error {
	out, err := b.OutcomeFrom(base, x)
	if err != nil {
		return err
	}
	fact.LocalSteps, fact.RiskBefore, fact.RiskAfter = out.Steps, out.RiskBefore, out.RiskAfter
	u.LocalSteps, u.RiskBefore, u.RiskAfter = uint32(out.Steps), out.RiskBefore, out.RiskAfter
	return u.take(wire.AppendVector(nil, out.Vector), schema)
}

// save keeps the update over a restart. An update that the disk does not take is
// sent nevertheless; a restart would have the agent train once more. When ctx has
// ended, the round is over, and the write is not tried again.
func (a *Agent) save(ctx context.Context, u *update) {
	write := func() error { return saveUpdate(a.cfg.Dir, u) }
	err := write()
	a.owner.Tell(func() {
		if ctx.Err() == nil {
			a.persisted(unwritten{saveTheUpdate, write, nil}, err)
		}
	})
}
