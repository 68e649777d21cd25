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
	// DeclaredStepTime is the configured time per local step, from which the number of local steps is computed. The
	// value 0 means that the agent measures the time.
	DeclaredStepTime time.Duration
	// LockShare is the federation's share of the device's training lock, if the device takes part in several
	// federations.
	LockShare *TrainingLockShare
}

// SetDefaults sets default values. By default the lock share is named after the federation.
func (c *Config) SetDefaults(federation wire.FederationName) {
	if c.Trainer == nil {
		c.Trainer = LocalTrainer{}
	}
	if c.LockShare == nil {
		c.LockShare = new(TrainingLock).NewShare(string(federation))
	}
}

// MeshAccess gives blocks of local steps access to the agent's neighbours.
type MeshAccess struct {
	CanMix             bool // true if the agent is configured to mix with neighbours
	NeighborBrokerConn mqtt.Conn
	BlockInbox         <-chan mqtt.Message // neighbours' messages for the current block
	BlockWaiter        host.JobWaiter      // notifies the current block of new messages
	// MakeExchangeConfig returns the configuration of a block with the given number of mixing steps; 0 means an endless
	// block.
	MakeExchangeConfig func(e agentround.StartTraining, t *wire.Task, mixings uint64) d2d.MessageExchangeConfig[float32]
}

// UpdateUploader encodes, stores and sends updates.
type UpdateUploader interface {
	// NextUpdateSequence returns the sequence number of an update that is about to be computed.
	NextUpdateSequence() uint64
	// PackUpdate encodes a change of the model and stores the result in u. It must be safe for concurrent use.
	PackUpdate(u *part.LocalUpdate, e *agentround.StartTraining, t *task.CompiledTask[float32], change []float32) error
	// SaveUpdate saves an update to disk. It must be safe for concurrent use. It calls over on the event loop to check
	// whether the round has ended.
	SaveUpdate(u *part.LocalUpdate, over func() bool)
	// SetCurrentUpdate sets the update to send when the round state machine requests this.
	SetCurrentUpdate(u *part.LocalUpdate)
}

// TrainingDependencies contains the functions and parts of the agent that training uses.
type TrainingDependencies struct {
	Uploads UpdateUploader
	Tasks   part.LocalTaskProvider
	// LoadTaskRows reads the local rows of an encoded task. If they fit the task, then is called on the event loop.
	LoadTaskRows func(hash wire.Digest, blob []byte, then func(*part.PreparedTask))
}

// TrainingManager is the part of an agent that trains models.
type TrainingManager struct {
	// Mesh provides access to the neighbours. It must be set before the agent runs.
	Mesh MeshAccess

	core              *part.AgentCore
	cfg               Config
	dependencies      TrainingDependencies
	personalModels    personalModelStore
	stepTimeEstimator learner.StepTimeEstimator
	jobs              *host.SerialJobQueue // queue in which training jobs run one after another
	watchdog          canceledJobWatchdog
	cancelRound       func()        // cancels the training for the current round
	endless           *endlessBlock // endless block that is running; nil if there is none
	saved             savedBlock    // endless block from disk, resumed when the agent starts
}

// New returns a TrainingManager. It loads the saved personal parameters and endless block.
func New(core *part.AgentCore, cfg Config, hooks TrainingDependencies) (t *TrainingManager, err error) {
	t = &TrainingManager{core: core, cfg: cfg, dependencies: hooks, jobs: host.NewSerialJobQueue(core.Loop),
		cancelRound:    func() {},
		personalModels: personalModelStore{slots: core.StateFolder.OpenSlots(state.PersonalModel)},
		watchdog:       canceledJobWatchdog{cancellationTimes: map[*time.Time]struct{}{}}}
	if err = t.personalModels.load(); err != nil {
		return nil, err
	}
	if t.saved, err = loadBlock(core.StateFolder); err != nil {
		core.Logger.Warn("cannot read the saved state of training with neighbours; waiting for the coordinator",
			"err", err)
	}
	return t, nil
}

// NeedsLink implements part.LinkNeedReporter. It returns true during an endless block, which may use the connection for
// mixing.
func (t *TrainingManager) NeedsLink() bool { return t.endless != nil }

// CheckStuckJobs returns an error if a training job is still running long after its cancellation. It may be called from
// any goroutine.
func (t *TrainingManager) CheckStuckJobs(now time.Time) error { return t.watchdog.checkStuckJobs(now) }

// CancelRoundTraining cancels the training for the current round and discards its result.
func (t *TrainingManager) CancelRoundTraining() { t.cancelRound() }

// TrainForRound computes the update of a round in a background job and passes agentround.TrainingEnded to the round
// state machine. stepShare is the share of the local steps that the agent's parts allow, from 0 to 1.
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

// stepTime returns the configured time per local step or, if none is configured, the measured time.
func (t *TrainingManager) stepTime() time.Duration {
	if t.cfg.DeclaredStepTime > 0 {
		return t.cfg.DeclaredStepTime
	}
	return t.stepTimeEstimator.EstimatedTimePerStep()
}

// handleTrainingResult processes the result of training for a round, which is either an update or an error.
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

// newLocalStepBlock prepares the local steps of a block. The parameter draws is the round that determines the seed of
// the random numbers.
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
