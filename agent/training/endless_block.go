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

// endlessBlock is a block without an end, from which rounds only request parameters. It continues while the coordinator
// is unreachable and, loaded from its file, after a restart.
type endlessBlock struct {
	trainEffect     agentround.StartTraining // edges and start of the schedule
	taskDigest      wire.Digest
	prepared        *part.PreparedTask
	localStepCount  int // E_k, the number of local steps
	cancel          func()
	finalParameters []float32           // set after its goroutine has ended
	requests        chan *updateRequest // request of the newest round
	restRequests    chan bool           // newest value of mustRest
	mustRest        bool
	failureErr      error // error that ended the block early; set on the event loop
}

// isRunOver reports whether the block's run has ended. o is the position of the last obeyed announcement.
func (b *endlessBlock) isRunOver(o wire.AnnouncementPosition) bool {
	return o != wire.AnnouncementPosition{} && (o.Run != b.trainEffect.Position.Run || o.Phase == wire.PhaseFinished)
}

// EndBlockIfRunOver ends a block whose run is over. It is called when the agent obeys an announcement.
func (t *TrainingManager) EndBlockIfRunOver() {
	if b := t.endless; b != nil && b.isRunOver(t.core.ObeyedPosition) {
		t.endless = nil
		t.stopBlockAndRemoveFile(b)
	}
}

// BeforeWait implements part.BeforeWaitHook. It pauses an endless block while any part requires that.
func (t *TrainingManager) BeforeWait() {
	if b := t.endless; b != nil && b.mustRest != t.core.TrainingMustRest() {
		t.requestBlockRest(b, !b.mustRest)
	}
}

// requestBlockRest makes a block rest or continue.
func (t *TrainingManager) requestBlockRest(b *endlessBlock, rest bool) {
	b.mustRest = rest
	host.ReplaceLatest(b.restRequests, rest)
	t.Mesh.BlockWaiter.Wake()
}

// blockSaveInterval is the interval at which a block is saved. After a restart the block is used only if too few
// neighbours send their parameters.
const blockSaveInterval = 10 * time.Minute

// BlockOrigin is the origin of an endless block's initial parameters.
type BlockOrigin string

// Origins of a block's initial parameters.
const (
	BlockFromModel         BlockOrigin = "model"     // base model of the round
	BlockFromPreviousBlock BlockOrigin = "block"     // previous block, which had other edges
	BlockFromNeighbor      BlockOrigin = "neighbour" // median of at least 3 neighbours that were already in the block
	BlockFromDisk          BlockOrigin = "disk"      // own saved block, since too few neighbours had parameters
)

// BlockOrigins returns all origins, for closed label sets.
func BlockOrigins() []BlockOrigin {
	return []BlockOrigin{BlockFromModel, BlockFromPreviousBlock, BlockFromNeighbor, BlockFromDisk}
}

// answerFromEndlessBlock passes a round's request to the endless block. It begins a new block if the round has other
// edges.
func (t *TrainingManager) answerFromEndlessBlock(q *updateRequest) {
	blob := wire.BlobDigest(q.prepared.CompiledTask.Task.AppendEncoding(nil))
	if b := t.endless; b == nil || b.trainEffect.Position.Run != q.trainEffect.Position.Run ||
		b.trainEffect.MixingBlockRound != q.trainEffect.MixingBlockRound || b.taskDigest != blob {
		if err := t.beginEndlessBlock(&endlessBlock{trainEffect: q.trainEffect, taskDigest: blob, prepared: q.prepared,
			localStepCount: q.localStepCount}, q.baseParameters,
			BlockFromModel); err != nil {
			q.deliverFailure(err)
			return
		}
	}
	// a failed block is not restarted: neighbours expect another step from this start of the agent
	if err := t.endless.failureErr; err != nil {
		q.deliverFailure(err)
		return
	}
	host.ReplaceLatest(t.endless.requests, q)
	t.Mesh.BlockWaiter.Wake()
}

// beginEndlessBlock begins a block. It replaces the current block and continues with its parameters.
func (t *TrainingManager) beginEndlessBlock(b *endlessBlock, x []float32, from BlockOrigin) error {
	ctx, cancel := context.WithCancel(t.core.Loop.Context())
	seed := b.trainEffect.Announcement.Seed
	if from == BlockFromDisk {
		seed ^= uint64(t.core.Signer.Epoch) << 32 // other random draws than before the restart
	}
	turn := t.newLockHandle()
	steps, err := t.newLocalStepBlock(ctx, &b.trainEffect, b.prepared, x, nil, b.localStepCount,
		b.trainEffect.MixingBlockRound, seed,
		turn)
	if err != nil {
		cancel()
		return err
	}
	b.cancel, b.requests, b.restRequests = cancel, make(chan *updateRequest, 1), make(chan bool, 1)
	t.requestBlockRest(b, t.core.TrainingMustRest())
	old := t.endless
	t.endless = b
	if old != nil {
		old.cancel()
		if old.failureErr != nil {
			old = nil
		}
	}
	t.jobs.Enqueue(func() {
		defer t.watchdog.watchJob(ctx)()
		if old != nil && old.trainEffect.Position.Run == b.trainEffect.Position.Run &&
			len(old.finalParameters) == len(x) {
			x, from = old.finalParameters, BlockFromPreviousBlock
		}
		defer turn.release()
		t.runEndlessBlock(ctx, b, steps, x, from, turn)
	})
	return nil
}

// runEndlessBlock runs on the goroutine of the block.
func (t *TrainingManager) runEndlessBlock(ctx context.Context, b *endlessBlock, steps LocalStepBlock, x []float32,
	from BlockOrigin,
	turn *lockHandle) {
	joins := from == BlockFromDisk || from == BlockFromModel &&
		b.trainEffect.MixingBlockRound != b.trainEffect.Position.Round
	h, err := t.newBlockRunner(b.trainEffect, b.prepared, steps, x, b.localStepCount, joins, turn)
	h.requests, h.restRequests = b.requests, b.restRequests
	h.onRoundAnswer = func(s d2d.AnswerRound) {
		q := h.pendingRequest
		h.pendingRequest = nil
		q.deliverUpdate(h, s, nil)
	}
	h.onSaveDue = func() {
		err := saveBlock(t.core.StateFolder, b, h.stepsTaken, h.parameters)
		t.core.Loop.RunOnLoop(func() { t.core.WriteRetrier.QualityReport("save the mixing state", err) })
	}
	h.onBlockStarted = func(joined bool) {
		if joined {
			from = BlockFromNeighbor
		}
		event := EndlessBlockBegan{EdgesMadeForRound: b.trainEffect.MixingBlockRound, Origin: from,
			Neighbors: len(b.trainEffect.MixingPeers)}
		t.core.Loop.RunOnLoop(func() { t.core.Observer.Observe(event) })
	}
	if err == nil {
		err = h.runWhileSubscribed(ctx)
	}
	if err != nil && ctx.Err() == nil {
		t.core.Loop.RunOnLoop(func() { t.failEndlessBlock(b, h, b.prepared.FailureCause(err)) })
		return
	}
	if b.finalParameters = h.parameters; h.machine != nil {
		_ = h.stepMachine(d2d.StopBlock{}) // StopBlock results in no local steps
	}
}

// failEndlessBlock ends a block that cannot continue. The waiting round and later rounds fail.
func (t *TrainingManager) failEndlessBlock(b *endlessBlock, h *blockRunner, err error) {
	b.failureErr = err
	q := h.pendingRequest
	select {
	case q = <-b.requests:
	default:
	}
	if q != nil {
		q.deliverFailure(err)
	}
	if t.endless == b {
		t.stopBlockAndRemoveFile(b)
	}
}

// stopBlockAndRemoveFile stops a block's goroutine and then removes its file. The next block waits for the removal,
// which could otherwise delete its file.
func (t *TrainingManager) stopBlockAndRemoveFile(b *endlessBlock) {
	b.cancel()
	t.jobs.Enqueue(t.removeBlockFile)
}

func (t *TrainingManager) removeBlockFile() {
	if err := t.core.StateFolder.RemoveFile(state.Block.Name); err != nil {
		t.core.Logger.Warn("cannot remove the saved mixing state", "err", err)
	}
}

// Start implements part.Starter. It resumes the endless block of an earlier process, even if the coordinator is
// unreachable. If the run of the block is over, it removes the file that the earlier process has left.
func (t *TrainingManager) Start() {
	b := t.saved
	t.saved = savedBlock{}
	if b.endlessBlock == nil {
		return
	}
	if b.isRunOver(t.core.ObeyedPosition) {
		t.removeBlockFile()
		return
	}
	t.dependencies.LoadTaskRows(b.taskDigest, b.encodedTask, func(p *part.PreparedTask) {
		if b.isRunOver(t.core.ObeyedPosition) || t.endless != nil { // a round has begun a block meanwhile
			return
		}
		b.prepared = p
		if err := t.beginEndlessBlock(b.endlessBlock, b.parameters, BlockFromDisk); err != nil {
			t.core.Logger.Warn("cannot resume the mixing block after the restart", "err", err)
		}
	})
}

var begunBlocks = observe.CounterByLabel("mixing_blocks_total",
	"Endless mixing blocks started, by the source of the initial parameters.",
	"from", observe.NamesAsStrings(BlockOrigins()))

// EndlessBlockBegan reports that an endless block has begun. It mixes over all rounds until its edges change.
type EndlessBlockBegan struct {
	EdgesMadeForRound wire.RoundID // round for which its edges were made
	Origin            BlockOrigin
	Neighbors         int
}

// Describe implements observe.Event.
func (e EndlessBlockBegan) Describe(d *observe.EventDescription) {
	d.IncCounter(begunBlocks, string(e.Origin))
	d.Log(observe.Info, "endless mixing block started", "block", e.EdgesMadeForRound, "neighbours", e.Neighbors,
		"starts_from", e.Origin)
}
