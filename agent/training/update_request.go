package training

import (
	"context"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// updateRequest is the request of a round for this agent's update.
type updateRequest struct {
	training             *TrainingManager
	ctx                  context.Context // context that ends with the round
	cancel               func()          // function that cancels ctx
	trainEffect          agentround.StartTraining
	prepared             *part.PreparedTask
	baseParameters       []float32 // base model; includes personal parameters after the block starts
	ownParametersAtStart []float32 // initial personal parameters; nil if the task has none
	localStepCount       int       // number E_k of local steps that this agent, agent k, takes
	sizingReason         learner.StepCountReason
	began                time.Time
	requestSequence      uint64
}

// computeStatistics computes the agent's contribution to a statistics round in a background job.
func (q *updateRequest) computeStatistics() {
	q.training.core.DataJobs.Enqueue(func() {
		defer q.training.watchdog.watchJob(q.ctx)()
		u, turn := q.newUpdate(), q.training.newLockHandle()
		if turn.acquire(q.ctx) != nil {
			return // The round is over.
		}
		v, err := q.training.cfg.Trainer.Moments(q.prepared.CompiledTask, q.prepared.TrainingRows)
		turn.release()
		if err == nil {
			err = u.SetPayload(wire.AppendVector(nil, v),
				q.prepared.CompiledTask.UpdateSchema(wire.KindStatistics).Hash())
		}
		if err == nil {
			q.saveUpdate(u)
		}
		q.deliverResult(u, LocalTrainingFinished{}, q.prepared.FailureCause(err))
	})
}

// trainFiniteBlock trains a finite block in a background job. The block continues after the update until the round
// ends, because neighbours may need its snapshots.
func (q *updateRequest) trainFiniteBlock() {
	t, e := q.training, &q.trainEffect
	// reserve a tenth of the remaining time for sending the update
	timely, cancel := t.core.Loop.WithDeadline(q.ctx, e.Deadline.Add(-e.Deadline.Sub(t.core.Loop.Now())/10))
	t.jobs.Enqueue(func() {
		defer cancel()
		defer t.watchdog.watchJob(q.ctx)()
		turn := t.newLockHandle() // Acquire the lock before parameters are allocated.
		if err := turn.acquire(timely); err != nil {
			q.deliverResult(&part.LocalUpdate{}, LocalTrainingFinished{},
				fmt.Errorf("the device is training for another federation: %w",
					task.ErrNoSteps))
			return
		}
		defer turn.release()
		var steps LocalStepBlock
		err := q.setPersonalParameters(timely)
		if err == nil {
			steps, err = t.newLocalStepBlock(timely, e, q.prepared, q.baseParameters, q.ownParametersAtStart,
				q.localStepCount, e.Position.Round,
				e.Announcement.Seed, turn)
		}
		if err != nil {
			q.deliverResult(&part.LocalUpdate{}, LocalTrainingFinished{}, err)
			return
		}
		b, err := t.newBlockRunner(q.trainEffect, q.prepared, steps, q.baseParameters, q.localStepCount, false, turn)
		if err == nil {
			b.onRoundAnswer = func(s d2d.AnswerRound) { q.deliverUpdate(b, s, nil) }
			err = b.runWhileSubscribed(q.ctx)
		}
		if err != nil {
			q.deliverUpdate(b, d2d.AnswerRound{Stats: b.mixingStats()}, err)
		}
	})
}

// deliverUpdate creates the update from the parameters of a block, saves it if the coordinator needs it, and passes it
// to the event loop. If err is set, it reports the failure instead.
func (q *updateRequest) deliverUpdate(b *blockRunner, s d2d.AnswerRound, err error) {
	if err == nil {
		err = b.lockHandle.acquire(q.ctx)
	}
	compiled, e, now := q.prepared.CompiledTask, &q.trainEffect, q.training.core.Loop.Now
	u, event := q.newUpdate(), LocalTrainingFinished{}
	if compiled.Task.Mixing.IntervalSteps > 0 {
		u.EdgeMeasurements = wire.MixingEdgeMeasurements{MixingBlockRound: e.MixingBlockRound,
			Edges: s.EdgeMeasurements}
		event.MixingStats, event.BlockDuration = &s.Stats, now().Sub(q.began)
	}
	if err == nil {
		began := now()
		var out task.LocalOutcome[float32]
		if out, err = b.localSteps.OutcomeFromBase(q.baseParameters, b.parameters); err == nil {
			q.savePersonalParameters(&out)
			event.LocalSteps, event.RiskBefore, event.RiskAfter = out.StepsTaken, out.RiskBefore, out.RiskAfter
			u.LocalSteps, u.RiskBefore, u.RiskAfter = uint32(out.StepsTaken), out.RiskBefore, out.RiskAfter
			err = q.training.dependencies.Uploads.PackUpdate(u, e, compiled, out.UpdateVector)
		}
		event.LocalStepsDuration = b.computeTime + now().Sub(began)
		u.IsCheapToRecompute = compiled.Task.Training.ExchangeKind == spec.ExchangeGradient &&
			event.LocalStepsDuration < maxCheapRecomputeTime
	}
	if held := q.prepared.HeldOutRows; err == nil && held != nil {
		score := compiled.Model.Score(q.baseParameters, compiled.RiskSample(held, q.training.riskSampleSeed(e)))
		if q.prepared.View.Err() == nil {
			event.HeldOutScore = &score
		}
	}
	if scorer, scores := b.localSteps.(ScoringBlock); err == nil && scores {
		var lost error // error of scoring the base model; the round then continues without a score
		if event.HeldOutScore, lost = scorer.Score(q.baseParameters); lost != nil {
			q.training.core.Logger.Warn("cannot evaluate the base model on the held-out rows", "err", lost)
		}
	}
	b.lockHandle.release()
	event.LockWait, b.lockHandle.totalWait = b.lockHandle.totalWait, 0
	if err == nil && !u.IsCheapToRecompute {
		q.saveUpdate(u)
	}
	q.deliverResult(u, event, q.prepared.FailureCause(err))
}

// maxCheapRecomputeTime is the maximum computing time of an update that is not saved on disk. After a restart such an
// update is computed again.
const maxCheapRecomputeTime = 50 * time.Millisecond

// newUpdate returns an update for the round that does not have a payload yet.
func (q *updateRequest) newUpdate() *part.LocalUpdate {
	e := &q.trainEffect
	return &part.LocalUpdate{RequestSequence: q.requestSequence, Epoch: e.Position.Epoch, Run: e.Position.Run,
		Round: e.Position.Round,
		Update: wire.Update{Kind: e.Announcement.Kind, BaseModelDigest: e.Announcement.BaseModel.Hash,
			Samples: q.training.cfg.Trainer.ReportedRowCount(q.prepared.TrainingRows)}}
}

// saveUpdate saves an update for the coordinator to disk. An update for neighbours stays in memory.
func (q *updateRequest) saveUpdate(u *part.LocalUpdate) {
	if over := func() bool { return q.ctx.Err() != nil }; q.trainEffect.MustUpload && !over() {
		q.training.dependencies.Uploads.SaveUpdate(u, over)
	}
}

// deliverFailure reports to the event loop that training for the round has failed.
func (q *updateRequest) deliverFailure(err error) {
	q.training.core.Loop.Go(func() { q.deliverResult(&part.LocalUpdate{}, LocalTrainingFinished{}, err) })
}

// deliverResult passes an update or an error to the event loop, unless its round is over.
func (q *updateRequest) deliverResult(u *part.LocalUpdate, event LocalTrainingFinished, err error) {
	event.Round, event.Version, event.StepCountReason = q.trainEffect.Position.Round,
		q.trainEffect.Announcement.BaseModelVersion, q.sizingReason
	_ = q.training.core.Loop.RunOnLoopContext(q.ctx, func() { // ignore: fails if the round has ended
		if q.ctx.Err() == nil {
			if err != nil {
				q.cancel()
			}
			q.training.handleTrainingResult(&q.trainEffect, u, event, err)
		}
	})
}
