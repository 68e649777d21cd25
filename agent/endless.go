package agent

import (
	"context"
	"crypto/sha256"
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
	asks   chan *ask     // of the newest round
	bars   chan bool     // whether it must rest: the newest word
	barred bool          // that word
	failed error         // why it went no further; the owner's
}

// past tells whether the block's run is over, going by what was obeyed last.
func (b *endless) past(o wire.Order) bool {
	return o != wire.Order{} && (o.Run != b.e.Order.Run || o.Phase == wire.PhaseFinished)
}

// bar tells the block whether it must rest. Only the owner calls it.
func (b *endless) bar(yes bool) {
	b.barred = yes
	replace(b.bars, yes)
}

// replace puts the newest word into a channel that holds one, in the place of one that was not taken. Only one
// goroutine sends.
func replace[T any](c chan T, newest T) {
	select {
	case <-c:
	default:
	}
	c <- newest
}

// ask is a round's, for the parameters after H more local steps. The error is why there are none.
type ask struct {
	answer func(m *mixing, s d2d.Stats, err error)
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
	replace(a.endless.asks, &ask{func(m *mixing, s d2d.Stats, err error) {
		u, fact := a.newUpdate(e, p), Trained{Sizing: why, Mixed: &s, MixedFor: time.Since(began)}
		if err == nil {
			fact.Took = m.computed
			err = u.takeOutcome(m.steps, base, m.x, &fact, e.Announcement.Schema)
		}
		if err == nil && ctx.Err() == nil {
			a.save(ctx, u)
		}
		a.tellTrained(ctx, cease, e, u, fact, err)
	}})
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
	b.cancel, b.over, b.asks, b.bars = cancel, make(chan struct{}), make(chan *ask, 1), make(chan bool, 1)
	b.bar(a.barred())
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

// mixEndless is the block's goroutine. The owner reaches it by asks and bars, and hears of it by Tell.
func (a *Agent) mixEndless(ctx context.Context, b *endless, steps Block, x []float32, from BlockSource) {
	joins := from == FromDisk || from == FromModel && b.e.Block != b.e.Order.Round
	m, err := a.mesh.newMixing(b.e, &b.p.problem.Task, steps, x, joins)
	m.asks, m.bars = b.asks, b.bars
	m.answer = func(s d2d.Stats, err error) {
		q := m.asked
		m.asked = nil
		q.answer(m, s, err)
	}
	m.save = func() { a.keep(b, m) }
	m.began = func(joined bool) {
		if joined {
			from = FromNeighbor
		}
		fact := BlockBegan{Block: b.e.Block, From: from, Neighbors: len(b.e.Peers)}
		a.owner.Tell(func() { a.cfg.Observer.Observe(fact) })
	}
	if err == nil {
		err = m.work(ctx)
	}
	if err != nil && ctx.Err() == nil {
		a.owner.Tell(func() { a.failBlock(b, m, err) })
		return
	}
	if b.x = m.x; m.machine != nil {
		_ = m.step(d2d.Stop{}) // which takes no local steps
	}
}

// failBlock answers a round that asks for a block that goes no further, as later ones are.
func (a *Agent) failBlock(b *endless, m *mixing, err error) {
	b.failed = err
	q := m.asked
	select {
	case q = <-b.asks:
	default:
	}
	if q != nil {
		a.owner.Go(func() { q.answer(m, d2d.Stats{}, err) })
	}
	if a.endless == b {
		a.clearBlock(b)
	}
}

// keep saves the block, for a restart.
func (a *Agent) keep(b *endless, m *mixing) {
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
