package agent

import (
	"context"
	"time"

	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// endless is a block without an end. It outlives the rounds, which only ask for
// its parameters, the connection to the coordinator and, on disk, the process.
type endless struct {
	e      round.Train // the edges, and where the schedule began
	task   wire.Digest
	p      *prepared
	steps  int // E_k
	cancel func()
	x      []float32 // at its end: what it came to
	asks   chan *ask // of the newest round
	bars   chan bool // whether it must rest: the newest word
	barred bool      // that word
	failed error     // why it went no further; the owner's
}

// past tells whether the block's run is over, going by what was obeyed last.
func (b *endless) past(o wire.Order) bool {
	return o != wire.Order{} && (o.Run != b.e.Order.Run || o.Phase == wire.PhaseFinished)
}

// bar tells the block whether it must rest.
func (a *Agent) bar(b *endless, yes bool) {
	b.barred = yes
	replace(b.bars, yes)
	a.mesh.blockWaiter.Wake()
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

// received takes what waits in a channel, if anything does.
func received[T any](c <-chan T) (x T, ok bool) {
	select {
	case x, ok = <-c:
	default:
	}
	return x, ok
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
	FromNeighbor BlockSource = "neighbour" // the median of 3 or more that were in the block already
	FromDisk     BlockSource = "disk"      // as too few neighbours had any
)

// BlockSources returns all sources, for closed label sets.
func BlockSources() []BlockSource {
	return []BlockSource{FromModel, FromBlock, FromNeighbor, FromDisk}
}

// mixOn answers a round where blocks have no end, and begins the block if it has other edges than the one under way.
func (a *Agent) mixOn(q *ask) {
	blob := wire.BlobDigest(q.p.problem.Task.Append(nil))
	if b := a.endless; b == nil || b.e.Order.Run != q.e.Order.Run || b.e.Block != q.e.Block || b.task != blob {
		if err := a.beginBlock(&endless{e: q.e, task: blob, p: q.p, steps: q.steps}, q.base, FromModel); err != nil {
			q.fail(err)
			return
		}
	}
	// its edges are spent: neighbours know this start of the agent at another step
	if err := a.endless.failed; err != nil {
		q.fail(err)
		return
	}
	replace(a.endless.asks, q)
	a.mesh.blockWaiter.Wake()
}

// beginBlock begins a block, in the place of the one under way, and with what that came to.
func (a *Agent) beginBlock(b *endless, x []float32, from BlockSource) error {
	ctx, cancel := context.WithCancel(a.owner.Context())
	seed := b.e.Announcement.Seed
	if from == FromDisk {
		seed ^= uint64(a.cfg.Boot) << 32 // other draws than the start before
	}
	turn := a.newHold()
	steps, err := a.newBlock(ctx, b.e, b.p, x, nil, b.steps, b.e.Block, seed, turn)
	if err != nil {
		cancel()
		return err
	}
	b.cancel, b.asks, b.bars = cancel, make(chan *ask, 1), make(chan bool, 1)
	a.bar(b, a.barred())
	old := a.endless
	a.endless = b
	if old != nil {
		old.cancel()
		if old.failed != nil {
			old = nil
		}
	}
	a.blocks.Do(func() {
		defer a.watchdog.watch(ctx)()
		if old != nil && old.e.Order.Run == b.e.Order.Run && len(old.x) == len(x) {
			x, from = old.x, FromBlock
		}
		defer turn.release()
		a.runEndless(ctx, b, steps, x, from, turn)
	})
	return nil
}

// runEndless is the block's goroutine. The owner reaches it by asks and bars, and hears of it by Tell.
func (a *Agent) runEndless(ctx context.Context, b *endless, steps Block, x []float32, from BlockSource, turn *hold) {
	joins := from == FromDisk || from == FromModel && b.e.Block != b.e.Order.Round
	h, err := a.mesh.newHost(b.e, b.p, steps, x, b.steps, joins, turn)
	h.asks, h.bars = b.asks, b.bars
	h.answer = func(s d2d.Answer) {
		q := h.asked
		h.asked = nil
		q.answer(h, s, nil)
	}
	h.save = func() { a.keep(b, h) }
	h.began = func(joined bool) {
		if joined {
			from = FromNeighbor
		}
		fact := BlockBegan{Block: b.e.Block, From: from, Neighbors: len(b.e.Peers)}
		a.owner.Tell(func() { a.cfg.Observer.Observe(fact) })
	}
	if err == nil {
		err = h.work(ctx)
	}
	if err != nil && ctx.Err() == nil {
		a.owner.Tell(func() { a.failBlock(b, h, b.p.why(err)) })
		return
	}
	if b.x = h.x; h.machine != nil {
		_ = h.step(d2d.Stop{}) // which takes no local steps
	}
}

// failBlock answers a round that asks for a block that goes no further, as later ones are.
func (a *Agent) failBlock(b *endless, h *blockHost, err error) {
	b.failed = err
	q := h.asked
	select {
	case q = <-b.asks:
	default:
	}
	if q != nil {
		q.fail(err)
	}
	if a.endless == b {
		a.clearBlock(b)
	}
}

// keep saves the block, for a restart.
func (a *Agent) keep(b *endless, h *blockHost) {
	err := saveBlock(&a.cfg, b, h.taken, h.x)
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
	a.blocks.Do(a.forgetBlock)
}

func (a *Agent) forgetBlock() {
	if err := a.cfg.remove(blockFile); err != nil {
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
		var view data.View
		l, fact := &local{}, DataLoaded{}
		if fact.Problem = a.understand(l, blob); fact.Problem == nil {
			fact.Task = l.problem.Task.Name
			view, fact.Problem = l.rows.Snapshot()
		}
		return func() {
			if fact.Problem == nil {
				fact.Rows = view.Rows.Len()
				b.p, fact.Problem = a.enough(l, view)
			}
			a.cfg.Observer.Observe(fact)
			if b.p == nil || b.past(a.order) || a.endless != nil { // or the coordinator was faster
				return
			}
			if err := a.beginBlock(b, x, FromDisk); err != nil {
				a.cfg.Logger.Warn("the block before the restart cannot go on", "err", err)
			}
		}
	})
}
