package agent

import (
	"context"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// endlessBlock is a block without an end. It outlives the rounds, which only ask for
// its parameters, the connection to the coordinator and, on disk, the process.
type endlessBlock struct {
	trainEffect     round.Train // the edges, and where the schedule began
	task            wire.Digest
	p               *part.PreparedTask
	steps           int // E_k
	cancel          func()
	finalParameters []float32           // at its end: what it came to
	updateRequests  chan *updateRequest // of the newest round
	restRequests    chan bool           // whether it must rest: the newest word
	mustRest        bool                // that word
	failed          error               // why it went no further; the owner's
}

// runIsOver tells whether the block's run is over, going by what was obeyed last.
func (b *endlessBlock) runIsOver(o wire.AnnouncementPosition) bool {
	return o != wire.AnnouncementPosition{} && (o.Run != b.trainEffect.Position.Run || o.Phase == wire.PhaseFinished)
}

// requestRest tells the block whether it must rest.
func (a *Agent) requestRest(b *endlessBlock, yes bool) {
	b.mustRest = yes
	host.ReplaceLatest(b.restRequests, yes)
	a.mesh.BlockWaiter.Wake()
}

// updateBlockRest has a block without an end rest while any part asks for it, and continue afterwards.
func (a *Agent) updateBlockRest() {
	if b := a.endless; b != nil && b.mustRest != a.mustRest() {
		a.requestRest(b, a.mustRest())
	}
}

// blockSaveInterval is the time after which a block is saved again: a device that comes back begins with a neighbour's
// parameters, and with its own only if all are gone.
const blockSaveInterval = 10 * time.Minute

// BlockSource tells what a block without an end began with.
type BlockSource string

// The sources.
const (
	BlockFromModel         BlockSource = "model"     // of the round
	BlockFromPreviousBlock BlockSource = "block"     // the one before it, with other edges
	BlockFromNeighbor      BlockSource = "neighbour" // the median of 3 or more that were in the block already
	BlockFromDisk          BlockSource = "disk"      // as too few neighbours had any
)

// BlockSources returns all sources, for closed label sets.
func BlockSources() []BlockSource {
	return []BlockSource{BlockFromModel, BlockFromPreviousBlock, BlockFromNeighbor, BlockFromDisk}
}

// answerFromEndlessBlock answers a round where blocks have no end, and begins the block if it has other edges than the
// one under way.
func (a *Agent) answerFromEndlessBlock(q *updateRequest) {
	blob := wire.BlobDigest(q.p.CompiledTask.Task.Append(nil))
	if b := a.endless; b == nil || b.trainEffect.Position.Run != q.trainEffect.Position.Run ||
		b.trainEffect.EdgeBlockRound != q.trainEffect.EdgeBlockRound || b.task != blob {
		if err := a.beginBlock(&endlessBlock{trainEffect: q.trainEffect, task: blob, p: q.p, steps: q.steps}, q.base,
			BlockFromModel); err != nil {
			q.fail(err)
			return
		}
	}
	// its edges are spent: neighbours know this start of the agent at another step
	if err := a.endless.failed; err != nil {
		q.fail(err)
		return
	}
	host.ReplaceLatest(a.endless.updateRequests, q)
	a.mesh.BlockWaiter.Wake()
}

// beginBlock begins a block, in the place of the one under way, and with what that came to.
func (a *Agent) beginBlock(b *endlessBlock, x []float32, from BlockSource) error {
	ctx, cancel := context.WithCancel(a.core.Loop.Context())
	seed := b.trainEffect.Announcement.Seed
	if from == BlockFromDisk {
		seed ^= uint64(a.cfg.Boot) << 32 // other draws than the start before
	}
	turn := a.newLockHandle()
	steps, err := a.newBlock(ctx, b.trainEffect, b.p, x, nil, b.steps, b.trainEffect.EdgeBlockRound, seed, turn)
	if err != nil {
		cancel()
		return err
	}
	b.cancel, b.updateRequests, b.restRequests = cancel, make(chan *updateRequest, 1), make(chan bool, 1)
	a.requestRest(b, a.mustRest())
	old := a.endless
	a.endless = b
	if old != nil {
		old.cancel()
		if old.failed != nil {
			old = nil
		}
	}
	a.trainingJobs.Do(func() {
		defer a.watchdog.watch(ctx)()
		if old != nil && old.trainEffect.Position.Run == b.trainEffect.Position.Run &&
			len(old.finalParameters) == len(x) {
			x, from = old.finalParameters, BlockFromPreviousBlock
		}
		defer turn.release()
		a.runEndless(ctx, b, steps, x, from, turn)
	})
	return nil
}

// runEndless is the block's goroutine. The owner reaches it by asks and bars, and hears of it by Tell.
func (a *Agent) runEndless(ctx context.Context, b *endlessBlock, steps Block, x []float32, from BlockSource,
	turn *lockHandle) {
	joins := from == BlockFromDisk || from == BlockFromModel &&
		b.trainEffect.EdgeBlockRound != b.trainEffect.Position.Round
	h, err := a.newBlockHost(b.trainEffect, b.p, steps, x, b.steps, joins, turn)
	h.updateRequests, h.restRequests = b.updateRequests, b.restRequests
	h.answerRound = func(s d2d.AnswerRound) {
		q := h.pendingRequest
		h.pendingRequest = nil
		q.deliverUpdate(h, s, nil)
	}
	h.save = func() { a.saveEndlessBlock(b, h) }
	h.onBlockStarted = func(joined bool) {
		if joined {
			from = BlockFromNeighbor
		}
		event := BlockBegan{Block: b.trainEffect.EdgeBlockRound, Origin: from,
			Neighbors: len(b.trainEffect.MixingPeers)}
		a.core.Loop.RunOnLoop(func() { a.cfg.Observer.Observe(event) })
	}
	if err == nil {
		err = h.runSubscribed(ctx)
	}
	if err != nil && ctx.Err() == nil {
		a.core.Loop.RunOnLoop(func() { a.failBlock(b, h, b.p.FailureCause(err)) })
		return
	}
	if b.finalParameters = h.parameters; h.machine != nil {
		_ = h.step(d2d.Stop{}) // which takes no local steps
	}
}

// failBlock answers a round that asks for a block that goes no further, as later ones are.
func (a *Agent) failBlock(b *endlessBlock, h *blockHost, err error) {
	b.failed = err
	q := h.pendingRequest
	select {
	case q = <-b.updateRequests:
	default:
	}
	if q != nil {
		q.fail(err)
	}
	if a.endless == b {
		a.stopBlockAndRemoveFile(b)
	}
}

// saveEndlessBlock saves the block, for a restart.
func (a *Agent) saveEndlessBlock(b *endlessBlock, h *blockHost) {
	err := saveBlock(&a.cfg, b, h.stepsTaken, h.parameters)
	a.core.Loop.RunOnLoop(func() { a.core.Writes.Report("save the state of mixing", err) })
}

// endBlock ends a block for good.
func (a *Agent) endBlock(b *endlessBlock) {
	if a.endless == b && b != nil {
		a.endless = nil
		a.stopBlockAndRemoveFile(b)
	}
}

// stopBlockAndRemoveFile ends a block's goroutine. The next block begins when this one's file is gone, or its own would
// go with it.
func (a *Agent) stopBlockAndRemoveFile(b *endlessBlock) {
	b.cancel()
	a.trainingJobs.Do(a.removeBlockFile)
}

func (a *Agent) removeBlockFile() {
	if err := a.cfg.state().Remove(state.Block.Name); err != nil {
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
	if b.runIsOver(a.core.ObeyedPosition) {
		a.removeBlockFile()
		return
	}
	a.core.Do(a.core.DataJobs, func() func() {
		var view data.View
		var l *part.LocalTask
		event := taskdata.Loaded{}
		if l, event.Problem = a.taskData.Open(b.task, blob); event.Problem == nil {
			event.Task = l.CompiledTask.Task.Name
			view, event.Problem = l.Rows.Snapshot()
		}
		return func() {
			if event.Problem == nil {
				event.Rows = view.Rows.Len()
				b.p, event.Problem = a.taskData.Split(l, view)
			}
			a.cfg.Observer.Observe(event)
			if b.p == nil || b.runIsOver(a.core.ObeyedPosition) || a.endless != nil { // or the coordinator was faster
				return
			}
			if err := a.beginBlock(b, x, BlockFromDisk); err != nil {
				a.cfg.Logger.Warn("the block before the restart cannot go on", "err", err)
			}
		}
	})
}

var begunBlocks = observe.CounterByLabel("mixing_blocks_total",
	"Blocks without an end that were begun, by what they began with.", "from", observe.Strings(BlockSources()))

// BlockBegan: the agent mixes from now on, over all rounds until its edges change.
type BlockBegan struct {
	Block     wire.RoundID // the round for which its edges were made
	Origin    BlockSource
	Neighbors int
}

// Describe implements observe.Event.
func (e BlockBegan) Describe(d *observe.Description) {
	d.Inc(begunBlocks, string(e.Origin))
	d.Log(observe.Info, "endless mixing block began", "block", e.Block, "neighbours", e.Neighbors,
		"begins_with", e.Origin)
}
