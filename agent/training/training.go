// Package training trains models on the local rows of an agent. It takes the local steps of rounds, which may mix with
// neighbours, runs endless blocks between rounds, and fine-tunes models for predictions.
package training

import (
	"context"
	"errors"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// Config configures the trainer and its speed.
type Config struct {
	// Trainer takes the local steps. The default is a LocalTrainer.
	Trainer Trainer
	// DeclaredStepTime, if set, is the declared time per local step, which determines the number of local steps in a
	// round. Otherwise the time is measured.
	DeclaredStepTime time.Duration
	// LockShare is the federation's share of the device's training lock, if the device takes part in several
	// federations.
	LockShare *TrainingLockShare
}

// SetDefaults sets default values. The default share has the name of the federation.
func (c *Config) SetDefaults(federation wire.FederationName) {
	if c.Trainer == nil {
		c.Trainer = LocalTrainer{}
	}
	if c.LockShare == nil {
		c.LockShare = new(TrainingLock).NewShare(string(federation))
	}
}

// MeshAccess provides blocks with access to the neighbours.
type MeshAccess struct {
	CanMix             bool // the agent is configured to mix with neighbours
	NeighborBrokerConn mqtt.Conn
	BlockInbox         <-chan mqtt.Message // neighbours' messages for the current block
	BlockWaiter        host.JobWaiter      // wakes the current block
	// MakeExchangeConfig returns the configuration of a block with the given number of mixing steps; 0 = endless.
	MakeExchangeConfig func(e agentround.StartTraining, t *wire.Task, mixings uint64) d2d.MessageExchangeConfig[float32]
}

// UpdateUploader encodes, stores and sends updates.
type UpdateUploader interface {
	// NextUpdateSequence returns the sequence number of an update that is about to be computed.
	NextUpdateSequence() uint64
	// PackUpdate sets the payload of an update from the change of the model. It may be called from any goroutine.
	PackUpdate(u *part.LocalUpdate, e *agentround.StartTraining, t *task.CompiledTask[float32], change []float32) error
	// SaveUpdate writes an update to disk. It may be called from any goroutine. over reports whether the round is over;
	// it is called on the event loop.
	SaveUpdate(u *part.LocalUpdate, over func() bool)
	// SetCurrentUpdate makes an update the current one. It is sent at the request of the round machine.
	SetCurrentUpdate(u *part.LocalUpdate)
}

// TrainingDependencies connects the part to other parts.
type TrainingDependencies struct {
	Uploads UpdateUploader
	Tasks   part.LocalTaskProvider
	// LoadTaskRows reads the local rows of an encoded task. If they fit the task, then is called on the event loop.
	LoadTaskRows func(hash wire.Digest, blob []byte, then func(*part.PreparedTask))
}

// TrainingManager is the part of an agent that trains.
type TrainingManager struct {
	// Mesh is set before the agent runs.
	Mesh MeshAccess

	core              *part.AgentCore
	cfg               Config
	dependencies      TrainingDependencies
	personalModels    personalModelStore
	stepTimeEstimator learner.StepTimeEstimator
	jobs              *host.SerialJobQueue // queue of blocks
	watchdog          canceledJobWatchdog
	cancelRound       func()        // ends the training of the current round
	endless           *endlessBlock // current endless block
	saved             savedBlock    // saved block to resume at the start
}

// New returns a TrainingManager. It loads the personal parameters and the block of an earlier process.
func New(core *part.AgentCore, cfg Config, hooks TrainingDependencies) (t *TrainingManager, err error) {
	t = &TrainingManager{core: core, cfg: cfg, dependencies: hooks, jobs: host.NewSerialJobQueue(core.Loop),
		cancelRound:    func() {},
		personalModels: personalModelStore{slots: core.StateFolder.OpenSlots(state.PersonalModel)},
		watchdog:       canceledJobWatchdog{cancellationTimes: map[*time.Time]struct{}{}}}
	if err = t.personalModels.load(); err != nil {
		return nil, err
	}
	if t.saved, err = loadBlock(core.StateFolder); err != nil {
		core.Logger.Warn("cannot read the saved mixing state; waiting for the coordinator", "err", err)
	}
	return t, nil
}

// NeedsLink implements part.LinkNeedReporter. The link may be the connection to the neighbours.
func (t *TrainingManager) NeedsLink() bool { return t.endless != nil }

// CheckStuckJobs returns an error if a training job is still running long after its cancellation. It may be called from
// any goroutine.
func (t *TrainingManager) CheckStuckJobs(now time.Time) error { return t.watchdog.checkStuckJobs(now) }

// CancelRoundTraining ends the training of the round. Its result is discarded.
func (t *TrainingManager) CancelRoundTraining() { t.cancelRound() }

// TrainForRound computes the update of a round in a background job. stepShare is the share of the local steps that the
// agent's parts allow, from 0 to 1. The round machine receives agentround.TrainingEnded.
func (t *TrainingManager) TrainForRound(e agentround.StartTraining, p *part.PreparedTask, base []float32,
	stepShare float64) {
	sizing := p.CompiledTask.StepCountPolicy()
	steps, why := sizing.LocalStepCount(t.stepTime())
	steps, why = sizing.ReduceStepCount(steps, why, stepShare)
	ctx, cancel := context.WithCancel(t.core.Loop.Context())
	t.cancelRound = cancel
	q := &updateRequest{training: t, ctx: ctx, cancel: cancel, trainEffect: e, prepared: p, baseParameters: base,
		localStepCount: steps,
		sizingReason:   why,
		began:          t.core.Loop.Now(), requestSequence: t.dependencies.Uploads.NextUpdateSequence()}
	switch {
	case e.Announcement.Kind == wire.KindStatistics:
		q.computeStatistics()
	case p.CompiledTask.Task.Mixing.HasEndlessBlocks:
		t.answerFromEndlessBlock(q)
	default:
		q.trainFiniteBlock()
	}
}

// stepTime returns the time per local step, declared or measured in earlier rounds.
func (t *TrainingManager) stepTime() time.Duration {
	if t.cfg.DeclaredStepTime > 0 {
		return t.cfg.DeclaredStepTime
	}
	return t.stepTimeEstimator.EstimatedTimePerStep()
}

// handleTrainingResult handles the result of a round's training, an update or an error.
func (t *TrainingManager) handleTrainingResult(e *agentround.StartTraining, u *part.LocalUpdate,
	event LocalTrainingFinished, err error) {
	if event.LocalSteps > 0 {
		t.stepTimeEstimator.AddMeasurement(event.LocalSteps, event.LocalStepsDuration)
		event.StepTime = t.stepTime()
		u.SecondsPerLocalStep = event.StepTime.Seconds()
		t.core.Observer.Observe(event)
	}
	result := agentround.TrainingEnded{Run: e.Position.Run, Round: e.Position.Round}
	if err != nil {
		t.core.Observer.Observe(LocalTrainingFailed{e.Position.Round, err})
		result.FailureReason = declineReasonOf(err)
	} else {
		t.dependencies.Uploads.SetCurrentUpdate(u)
		result.UpdateDigest, result.HasEdgeReport = u.PayloadManifest.Hash, len(u.EdgeMeasurements.Edges) > 0
	}
	t.core.HandleRoundEvent(result)
}

func declineReasonOf(err error) wire.DeclineReason {
	switch {
	case errors.As(err, new(*learner.DivergenceError)):
		return wire.DeclineDiverged
	case errors.Is(err, task.ErrNoSteps), errors.Is(err, task.ErrStoppedMidBlock):
		return wire.DeclineNoTime
	}
	return wire.DeclineBadData
}

// newLocalStepBlock prepares the local steps of a block. draws is the round that seeds its random draws.
func (t *TrainingManager) newLocalStepBlock(ctx context.Context, e *agentround.StartTraining, p *part.PreparedTask,
	base, own []float32, steps int,
	draws wire.RoundID, seed uint64, turn *lockHandle) (LocalStepBlock, error) {
	if !t.Mesh.CanMix && len(e.MixingPeers) > 0 {
		return nil, errors.New("the task requires mixing with neighbours, but d2d is not configured: add d2d to " +
			"agentd.yaml")
	}
	key := task.AgentRandomKey(t.core.ID)
	return t.cfg.Trainer.NewBlock(ctx, e.MixingBlockRound, p.CompiledTask, task.LocalJob[float32]{
		BaseParameters: base, Samples: p.TrainingRows, StepWeight: e.StepWeight,
		StepOffset: e.Announcement.PriorLocalSteps,
		Steps:      steps, Rand: task.AgentRand(seed, draws, key), RiskSampleSeed: t.riskSampleSeed(e),
		OwnParameters: own, DittoRand: task.AgentRand(task.PersonalStepsSeed(seed), draws, key),
		ShouldStop: func() bool { turn.yieldBetweenSteps(ctx); return false },
	})
}

// riskSampleSeed returns the seed for sampling the rows on which the risks of a round are computed.
func (t *TrainingManager) riskSampleSeed(e *agentround.StartTraining) uint64 {
	return task.RiskSampleSeed(e.Announcement.Seed, task.AgentRandomKey(t.core.ID))
}
