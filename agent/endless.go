package agent

import (
	"context"
	"crypto/sha256"
	"sync/atomic"
	"time"

	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// endless is a block without an end. It outlives the rounds, which only ask for
// what it has by then, the connection to the coordinator, and on disk the process.
type endless struct {
	e      round.Train // the edges, and where the schedule began
	task   wire.Digest
	p      *prepared
	steps  int // E_k
	cancel func()
	over   chan struct{} // closed at its end
	x      []float32     // then: what it came to
	asked  atomic.Pointer[ask]
	failed error         // why it went no further; the owner's
	barred atomic.Bool   // it must rest
	woken  chan struct{} // asked or barred have changed
}

// past tells whether the block's run is over, going by what was obeyed last.
func (b *endless) past(o wire.Order) bool {
	return o != wire.Order{} && (o.Run != b.e.Order.Run || o.Phase == wire.PhaseFinished)
}

// wake has the block look at what it is to do.
func (b *endless) wake() {
	select {
	case b.woken <- struct{}{}:
	default:
	}
}

// ask is a round's, for the parameters after H more local steps.
type ask struct {
	base   []float32
	at     uint64 // local steps of the block; 0 = not known yet
	answer func(out task.Outcome[float32], s d2d.Stats, computed time.Duration, err error)
}

// keepEvery is the time after which a block is saved again: a device that comes back begins with a neighbour's
// parameters, and with its own only if all are gone.
const keepEvery = 10 * time.Minute

// BlockSource tells what a block without an end began with.
type BlockSource string

// The sources.
const (
	FromModel    BlockSource = "model"     // of the round
	FromBlock    BlockSource = "block"     // the one before it, with other edges
	FromNeighbor BlockSource = "neighbour" // that sent a snapshot, as others were in the block already
	FromDisk     BlockSource = "disk"      // as no neighbour had one
)

// BlockSources returns all sources, for closed label sets.
func BlockSources() []BlockSource {
	return []BlockSource{FromModel, FromBlock, FromNeighbor, FromDisk}
}

// mixOn answers a round where blocks have no end, and begins the block if it has other edges than the one under way.
func (a *Agent) mixOn(ctx context.Context, cease func(), e round.Train, p *prepared, base []float32, steps int,
	why learner.SizingReason) {
	blob := sha256.Sum256(p.problem.Task.Append(nil))
	if b := a.endless; b == nil || b.e.Order.Run != e.Order.Run || b.e.Block != e.Block || b.task != blob {
		if err := a.beginBlock(&endless{e: e, task: blob, p: p, steps: steps}, base, FromModel); err != nil {
			a.owner.Go(func() { a.tellTrained(ctx, cease, e, &update{}, Trained{Sizing: why}, err) })
			return
		}
	}
	// its edges are spent: neighbours know this start of the agent at another step
	if err := a.endless.failed; err != nil {
		a.owner.Go(func() { a.tellTrained(ctx, cease, e, &update{}, Trained{Sizing: why}, err) })
		return
	}
	began := time.Now()
	a.endless.asked.Store(&ask{base: base,
		answer: func(out task.Outcome[float32], s d2d.Stats, computed time.Duration, err error) {
			u, fact := a.newUpdate(e, p), Trained{Sizing: why, Took: computed, Mixed: &s, MixedFor: time.Since(began)}
			if err == nil {
				err = u.takeOutcome(out, &fact, e.Announcement.Schema)
			}
			if err == nil && ctx.Err() == nil {
				a.save(ctx, u)
			}
			a.tellTrained(ctx, cease, e, u, fact, err)
		}})
	a.endless.wake()
}

// beginBlock begins a block beside the owner, in the place of the one under way, and with what that came to.
func (a *Agent) beginBlock(b *endless, x []float32, from BlockSource) error {
	ctx, cancel := context.WithCancel(a.owner.Context())
	seed := b.e.Announcement.Seed
	if from == FromDisk {
		seed ^= uint64(a.cfg.Boot) << 32 // other draws than the start before
	}
	block, err := a.cfg.Trainer.Block(ctx, b.e.Block, b.p.problem, task.Job[float32]{
		Base: x, Samples: b.p.samples, Weight: b.e.Weight, Offset: b.e.Announcement.Offset, Steps: b.steps,
		Rand: task.Source(seed, b.e.Block, task.Stream(a.cfg.ID)),
	})
	if err == nil && a.mesh.private == nil && len(b.e.Peers) > 0 {
		err = errNoMesh
	}
	if err != nil {
		cancel()
		return err
	}
	b.cancel, b.over, b.woken = cancel, make(chan struct{}), make(chan struct{}, 1)
	b.barred.Store(a.barred())
	old := a.endless
	a.endless = b
	before := a.mesh.block
	a.mesh.block = b.over
	if old != nil {
		old.cancel()
		if old.failed != nil {
			old = nil
		}
	}
	a.owner.Go(func() {
		defer close(b.over)
		<-before
		defer a.watchdog.watch(ctx)()
		if old != nil && old.e.Order.Run == b.e.Order.Run && len(old.x) == len(x) {
			x, from = old.x, FromBlock
		}
		a.mixEndless(ctx, b, block, x, from)
	})
	return nil
}

// mixEndless is the block's goroutine.
func (a *Agent) mixEndless(ctx context.Context, b *endless, steps Block, x []float32, from BlockSource) {
	joins := from == FromDisk || from == FromModel && b.e.Block != b.e.Order.Round
	m, err := a.mesh.newMixing(b.e, &b.p.problem.Task, steps, x, joins)
	if err == nil {
		m.turn = func() error { return a.turnOf(ctx, b, m, &from) }
		m.work(ctx, func(end mixed) { err = end.err })
	}
	if err != nil && ctx.Err() == nil {
		a.owner.Tell(func() { a.failBlock(b, err) })
		return
	}
	b.x = m.x
	a.keep(b, m)
}

// failBlock answers a round that asks for a block that goes no further, as later ones are.
func (a *Agent) failBlock(b *endless, err error) {
	b.failed = err
	if q := b.asked.Swap(nil); q != nil {
		a.owner.Go(func() { q.answer(task.Outcome[float32]{}, d2d.Stats{}, 0, err) })
	}
	if a.endless == b {
		a.clearBlock(b)
	}
}

// turnOf is what a block without an end does between two local steps.
func (a *Agent) turnOf(ctx context.Context, b *endless, m *mixing, from *BlockSource) error {
	if m.taken == 0 {
		if m.exchange.Stats().Joined {
			*from = FromNeighbor
		}
		fact := BlockBegan{Block: b.e.Block, From: *from, Neighbors: len(b.e.Peers)}
		a.owner.Tell(func() { a.cfg.Observer.Observe(fact) })
		a.keep(b, m)
	}
	if q := b.asked.Load(); q != nil && q.at == 0 {
		q.at = m.taken + uint64(b.p.problem.Task.Training.MaxSteps)
	} else if q != nil && m.taken >= q.at && b.asked.CompareAndSwap(q, nil) {
		out, err := m.steps.OutcomeFrom(q.base, m.x)
		s := m.exchange.Stats()
		q.answer(out, s.Since(m.reported), m.computed, err)
		m.reported, m.computed = s, 0
		a.keep(b, m)
	}
	if time.Since(m.kept) > keepEvery {
		a.keep(b, m)
	}
	if b.mustRest() {
		a.keep(b, m)
		b.rest(ctx)
	}
	return ctx.Err()
}

// mustRest tells whether the block may not go on now. What a round has asked for is finished first.
func (b *endless) mustRest() bool { return b.barred.Load() && b.asked.Load() == nil }

// rest waits until the block may go on. The neighbours give up waiting for it, and take it up again when they hear it.
func (b *endless) rest(ctx context.Context) {
	for b.mustRest() {
		select {
		case <-ctx.Done():
			return
		case <-b.woken:
		}
	}
}

// keep saves the block, for a restart.
func (a *Agent) keep(b *endless, m *mixing) {
	m.kept = time.Now()
	err := saveBlock(a.cfg.Dir, b, m.taken, m.x)
	a.owner.Tell(func() { a.written("save the state of mixing", err) })
}

// endBlock ends a block for good.
func (a *Agent) endBlock(b *endless) {
	if a.endless == b && b != nil {
		a.endless = nil
		a.clearBlock(b)
	}
}

// clearBlock ends a block's goroutine. The next block begins when this one's file is gone, or its own would go with it.
func (a *Agent) clearBlock(b *endless) {
	b.cancel()
	before, gone := a.mesh.block, make(chan struct{}) // the block's end, or that of an earlier call
	a.mesh.block = gone
	a.owner.Go(func() {
		defer close(gone)
		<-before
		a.forgetBlock()
	})
}

func (a *Agent) forgetBlock() {
	if err := removeBlock(a.cfg.Dir); err != nil {
		a.cfg.Logger.Warn("the state of mixing is left behind", "err", err)
	}
}

// resumeBlock goes on with the block that an earlier process was in, whether or not the coordinator can be reached. One
// whose run is over was left behind by a process that ended before it was removed.
func (a *Agent) resumeBlock() {
	b, blob, x, err := loadBlock(&a.cfg)
	if err != nil {
		a.cfg.Logger.Warn("the state of mixing is unreadable: the agent waits for the coordinator", "err", err)
	}
	if b == nil {
		return
	}
	if b.past(a.order) {
		a.forgetBlock()
		return
	}
	a.start(func() func() {
		p, _, fact := a.loadTask(blob)
		return func() {
			a.cfg.Observer.Observe(fact)
			if b.past(a.order) || a.endless != nil {
				return // the coordinator was faster
			}
			if b.p = p; p == nil {
				return
			}
			if err := a.beginBlock(b, x, FromDisk); err != nil {
				a.cfg.Logger.Warn("the block before the restart cannot go on", "err", err)
			}
		}
	})
}
