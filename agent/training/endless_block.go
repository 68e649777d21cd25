package training

import (
	"context"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// endlessBlock is a block without an end. Rounds only request its parameters. It continues while the coordinator cannot
// be reached and, from its file, after a restart.
type endlessBlock struct {
	trainEffect     agentround.Train // the edges, and the beginning of the schedule
	task            wire.Digest
	prepared        *part.PreparedTask
	steps           int // E_k
	cancel          func()
	finalParameters []float32           // once its goroutine has ended
	requests        chan *updateRequest // the newest round's
	restRequests    chan bool           // the newest value of mustRest
	mustRest        bool
	failureErr      error // why it ended early; set on the owner's goroutine
}

// runIsOver reports whether the block's run is over, given the position of the last obeyed announcement.
func (b *endlessBlock) runIsOver(o wire.AnnouncementPosition) bool {
	return o != wire.AnnouncementPosition{} && (o.Run != b.trainEffect.Position.Run || o.Phase == wire.PhaseFinished)
}

// EndBlockIfRunOver is called when the agent obeys an announcement. It ends a block whose run is over.
func (t *Part) EndBlockIfRunOver() {
	if b := t.endless; b != nil && b.runIsOver(t.core.ObeyedPosition) {
		t.endless = nil
		t.stopBlockAndRemoveFile(b)
	}
}

// BeforeWait implements part.BeforeWaitHook: a block without an end rests while any part asks for it.
func (t *Part) BeforeWait() {
	if b := t.endless; b != nil && b.mustRest != t.core.TrainingMustRest() {
		t.requestRest(b, !b.mustRest)
	}
}

// requestRest has a block rest, or continue.
func (t *Part) requestRest(b *endlessBlock, rest bool) {
	b.mustRest = rest
	host.ReplaceLatest(b.restRequests, rest)
	t.Mesh.Waiter.Wake()
}

// blockSaveInterval is the time after which a block is saved again: a device that comes back begins with a neighbour's
// parameters, and with its own only if all are gone.
const blockSaveInterval = 10 * time.Minute

// BlockOrigin is the origin of the parameters with which a block without an end has begun.
type BlockOrigin string

// The sources.
const (
	BlockFromModel         BlockOrigin = "model"     // of the round
	BlockFromPreviousBlock BlockOrigin = "block"     // the previous block, which had other edges
	BlockFromNeighbor      BlockOrigin = "neighbour" // the median of 3 or more that were in the block already
	BlockFromDisk          BlockOrigin = "disk"      // as too few neighbours had any
)

// BlockOrigins returns all sources, for closed label sets.
func BlockOrigins() []BlockOrigin {
	return []BlockOrigin{BlockFromModel, BlockFromPreviousBlock, BlockFromNeighbor, BlockFromDisk}
}

// answerFromEndlessBlock has a block without an end answer a round. It begins the block if the round has other edges
// than the block under way.
func (t *Part) answerFromEndlessBlock(q *updateRequest) {
	blob := wire.BlobDigest(q.prepared.CompiledTask.Task.Append(nil))
	if b := t.endless; b == nil || b.trainEffect.Position.Run != q.trainEffect.Position.Run ||
		b.trainEffect.MixingBlockRound != q.trainEffect.MixingBlockRound || b.task != blob {
		if err := t.beginBlock(&endlessBlock{trainEffect: q.trainEffect, task: blob, prepared: q.prepared,
			steps: q.steps}, q.base,
			BlockFromModel); err != nil {
			q.fail(err)
			return
		}
	}
	// a block that has failed does not begin again: neighbours know this start of the agent at another step
	if err := t.endless.failureErr; err != nil {
		q.fail(err)
		return
	}
	host.ReplaceLatest(t.endless.requests, q)
	t.Mesh.Waiter.Wake()
}

// beginBlock begins a block, which replaces the one under way and continues with its parameters.
func (t *Part) beginBlock(b *endlessBlock, x []float32, from BlockOrigin) error {
	ctx, cancel := context.WithCancel(t.core.Loop.Context())
	seed := b.trainEffect.Announcement.Seed
	if from == BlockFromDisk {
		seed ^= uint64(t.core.Signer.Epoch) << 32 // other draws than before the restart
	}
	turn := t.newLockHandle()
	steps, err := t.newBlock(ctx, &b.trainEffect, b.prepared, x, nil, b.steps, b.trainEffect.MixingBlockRound, seed,
		turn)
	if err != nil {
		cancel()
		return err
	}
	b.cancel, b.requests, b.restRequests = cancel, make(chan *updateRequest, 1), make(chan bool, 1)
	t.requestRest(b, t.core.TrainingMustRest())
	old := t.endless
	t.endless = b
	if old != nil {
		old.cancel()
		if old.failureErr != nil {
			old = nil
		}
	}
	t.jobs.Enqueue(func() {
		defer t.watchdog.watch(ctx)()
		if old != nil && old.trainEffect.Position.Run == b.trainEffect.Position.Run &&
			len(old.finalParameters) == len(x) {
			x, from = old.finalParameters, BlockFromPreviousBlock
		}
		defer turn.release()
		t.runEndless(ctx, b, steps, x, from, turn)
	})
	return nil
}

// runEndless is the block's goroutine.
func (t *Part) runEndless(ctx context.Context, b *endlessBlock, steps Block, x []float32, from BlockOrigin,
	turn *lockHandle) {
	joins := from == BlockFromDisk || from == BlockFromModel &&
		b.trainEffect.MixingBlockRound != b.trainEffect.Position.Round
	h, err := t.newBlockRunner(b.trainEffect, b.prepared, steps, x, b.steps, joins, turn)
	h.requests, h.restRequests = b.requests, b.restRequests
	h.onRoundAnswer = func(s d2d.AnswerRound) {
		q := h.pendingRequest
		h.pendingRequest = nil
		q.deliverUpdate(h, s, nil)
	}
	h.onSaveDue = func() {
		err := saveBlock(t.core.State, b, h.stepsTaken, h.parameters)
		t.core.Loop.RunOnLoop(func() { t.core.Writes.Report("save the state of mixing", err) })
	}
	h.onBlockStarted = func(joined bool) {
		if joined {
			from = BlockFromNeighbor
		}
		event := EndlessBlockBegan{EdgeBlockRound: b.trainEffect.MixingBlockRound, Origin: from,
			Neighbors: len(b.trainEffect.MixingPeers)}
		t.core.Loop.RunOnLoop(func() { t.core.Observer.Observe(event) })
	}
	if err == nil {
		err = h.runSubscribed(ctx)
	}
	if err != nil && ctx.Err() == nil {
		t.core.Loop.RunOnLoop(func() { t.failBlock(b, h, b.prepared.FailureCause(err)) })
		return
	}
	if b.finalParameters = h.parameters; h.machine != nil {
		_ = h.step(d2d.StopBlock{}) // which takes no local steps
	}
}

// failBlock ends a block that cannot continue. The round that waits for it, and later ones, fail.
func (t *Part) failBlock(b *endlessBlock, h *blockRunner, err error) {
	b.failureErr = err
	q := h.pendingRequest
	select {
	case q = <-b.requests:
	default:
	}
	if q != nil {
		q.fail(err)
	}
	if t.endless == b {
		t.stopBlockAndRemoveFile(b)
	}
}

// stopBlockAndRemoveFile ends a block's goroutine, and then removes its file. The next block begins after that: the
// removal could otherwise delete its file.
func (t *Part) stopBlockAndRemoveFile(b *endlessBlock) {
	b.cancel()
	t.jobs.Enqueue(t.removeBlockFile)
}

func (t *Part) removeBlockFile() {
	if err := t.core.State.Remove(state.Block.Name); err != nil {
		t.core.Logger.Warn("the state of mixing is left behind", "err", err)
	}
}

// Start implements part.Starter. A block without an end that an earlier process was in continues, whether or not the
// coordinator can be reached. If its run is over, an earlier process ended before it had removed the file.
func (t *Part) Start() {
	b := t.saved
	t.saved = savedBlock{}
	if b.endlessBlock == nil {
		return
	}
	if b.runIsOver(t.core.ObeyedPosition) {
		t.removeBlockFile()
		return
	}
	t.dependencies.LoadTask(b.task, b.encodedTask, func(p *part.PreparedTask) {
		if b.runIsOver(t.core.ObeyedPosition) || t.endless != nil { // a round was faster
			return
		}
		b.prepared = p
		if err := t.beginBlock(b.endlessBlock, b.parameters, BlockFromDisk); err != nil {
			t.core.Logger.Warn("the block before the restart cannot go on", "err", err)
		}
	})
}

var begunBlocks = observe.CounterByLabel("mixing_blocks_total",
	"Blocks without an end that were begun, by what they began with.", "from", observe.NamesAsStrings(BlockOrigins()))

// EndlessBlockBegan: a block without an end has begun. It mixes over all rounds until its edges change.
type EndlessBlockBegan struct {
	EdgeBlockRound wire.RoundID // the round for which its edges were made
	Origin         BlockOrigin
	Neighbors      int
}

// Describe implements observe.Event.
func (e EndlessBlockBegan) Describe(d *observe.EventDescription) {
	d.IncCounter(begunBlocks, string(e.Origin))
	d.Log(observe.Info, "endless mixing block began", "block", e.EdgeBlockRound, "neighbours", e.Neighbors,
		"begins_with", e.Origin)
}
