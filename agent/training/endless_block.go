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

// endlessBlock is a block of local steps and mixing that continues across rounds; a round only requests the block's
// current parameters. The block also continues while the coordinator is unreachable and after a restart.
type endlessBlock struct {
	// effect that contains the neighbours of the block and the start of its step size schedule
	trainEffect     agentround.StartTraining
	taskDigest      wire.Digest
	prepared        *part.PreparedTask
	localStepCount  int // number E_k of local steps that this agent, agent k, takes
	cancel          func()
	finalParameters []float32           // parameters at the end; set after the goroutine has ended
	requests        chan *updateRequest // channel that holds the request of the newest round
	restRequests    chan bool           // channel that holds the newest value of mustRest
	mustRest        bool
	failureErr      error // error that ended the block; used only on the event loop
}

// isRunOver reports whether the run of the block has ended, given the position o of the last announcement that the
// agent followed.
func (b *endlessBlock) isRunOver(o wire.AnnouncementPosition) bool {
	return o != wire.AnnouncementPosition{} && (o.Run != b.trainEffect.Position.Run || o.Phase == wire.PhaseFinished)
}

// EndBlockIfRunOver ends the endless block if its run is over. It is called when the agent follows an announcement.
func (t *TrainingManager) EndBlockIfRunOver() {
	if b := t.endless; b != nil && b.isRunOver(t.core.ObeyedPosition) {
		t.endless = nil
		t.stopBlockAndRemoveFile(b)
	}
}

// BeforeWait implements part.BeforeWaitHook. It pauses the endless block while any part of the agent requires this.
func (t *TrainingManager) BeforeWait() {
	if b := t.endless; b != nil && b.mustRest != t.core.TrainingMustRest() {
		t.requestBlockRest(b, !b.mustRest)
	}
}

// requestBlockRest pauses a block if rest is true and resumes it otherwise.
func (t *TrainingManager) requestBlockRest(b *endlessBlock, rest bool) {
	b.mustRest = rest
	host.ReplaceLatest(b.restRequests, rest)
	t.Mesh.BlockWaiter.Wake()
}

// blockSaveInterval is the interval at which an endless block is saved to disk. A saved block is used after a restart
// if too few neighbours send their parameters.
const blockSaveInterval = 10 * time.Minute

// BlockOrigin is the source of an endless block's initial parameters.
type BlockOrigin string

// Sources of the initial parameters of an endless block.
const (
	BlockFromModel BlockOrigin = "model" // the block started from the base model of the round
	// the block started from the parameters of the previous block, which had other neighbours.
	BlockFromPreviousBlock BlockOrigin = "block"
	// the block started from the median of at least 3 neighbours that run the block.
	BlockFromNeighbor BlockOrigin = "neighbour"
	BlockFromDisk     BlockOrigin = "disk" // the block was loaded from disk, because too few neighbours had parameters
)

// BlockOrigins returns all origins. The metrics use them as label values.
func BlockOrigins() []BlockOrigin {
	return []BlockOrigin{BlockFromModel, BlockFromPreviousBlock, BlockFromNeighbor, BlockFromDisk}
}

// answerFromEndlessBlock passes a round's request for parameters to the endless block. It starts a new block if the
// round has other neighbours.
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
	// Do not restart a failed block, because the neighbours expect other steps from this process of the agent.
	if err := t.endless.failureErr; err != nil {
		q.deliverFailure(err)
		return
	}
	host.ReplaceLatest(t.endless.requests, q)
	t.Mesh.BlockWaiter.Wake()
}

// beginEndlessBlock starts a block with the parameters x. If a block is running, it ends that block and continues with
// its parameters.
func (t *TrainingManager) beginEndlessBlock(b *endlessBlock, x []float32, from BlockOrigin) error {
	ctx, cancel := context.WithCancel(t.core.Loop.Context())
	seed := b.trainEffect.Announcement.Seed
	if from == BlockFromDisk {
		// Avoid repeating the random numbers that were used before the restart.
		seed ^= uint64(t.core.Signer.Epoch) << 32
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

// runEndlessBlock runs a block until ctx ends. It is called on the goroutine of the block.
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
		t.core.Loop.RunOnLoop(func() { t.core.WriteRetrier.ReportWriteResult("save the mixing state", err) })
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
		_ = h.stepMachine(d2d.StopBlock{}) // Ignore the error: StopBlock causes no local steps, so it cannot fail.
	}
}

// failEndlessBlock ends a block that cannot continue. The current round and later rounds receive its error.
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

// stopBlockAndRemoveFile stops a block and then removes the block's file. The next block waits for the removal;
// otherwise the removal could delete the next block's file.
func (t *TrainingManager) stopBlockAndRemoveFile(b *endlessBlock) {
	b.cancel()
	t.jobs.Enqueue(t.removeBlockFile)
}

func (t *TrainingManager) removeBlockFile() {
	if err := t.core.StateFolder.RemoveFile(state.Block.Name); err != nil {
		t.core.Logger.Warn("cannot remove the saved state of training with neighbours", "err", err)
	}
}

// Start implements part.Starter. It resumes the endless block saved by an earlier process, even if the coordinator is
// unreachable, or removes the saved file if the block's run is over.
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
		// A round may have started another block in the meantime.
		if b.isRunOver(t.core.ObeyedPosition) || t.endless != nil {
			return
		}
		b.prepared = p
		if err := t.beginEndlessBlock(b.endlessBlock, b.parameters, BlockFromDisk); err != nil {
			t.core.Logger.Warn("cannot resume training with neighbours after the restart", "err", err)
		}
	})
}

var begunBlocks = observe.CounterByLabel("mixing_blocks_total",
	"Number of endless mixing blocks (training with neighbours without server rounds) that were started, by the "+
		"source of the initial parameters.",
	"from", observe.NamesAsStrings(BlockOrigins()))

// EndlessBlockBegan reports that an endless block has started. It continues across rounds until the neighbours change.
type EndlessBlockBegan struct {
	EdgesMadeForRound wire.RoundID // round for which the coordinator chose the neighbours
	Origin            BlockOrigin
	Neighbors         int
}

// Describe implements observe.Event.
func (e EndlessBlockBegan) Describe(d *observe.EventDescription) {
	d.IncCounter(begunBlocks, string(e.Origin))
	d.Log(observe.Info, "started training with neighbours in an endless mixing block",
		"block", e.EdgesMadeForRound, "neighbours", e.Neighbors,
		"starts_from", e.Origin)
}
