package agent

import (
	"context"
	"errors"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// startDataJob runs work beside the owner, one job at a time, and then the function that
// it returns in the owner's goroutine.
func (a *Agent) startDataJob(work func() func()) { a.startJobIn(a.dataJobs, work) }

// startJobIn is start in a line of jobs.
func (a *Agent) startJobIn(jobs *host.SerialQueue, work func() func()) {
	jobs.Do(func() {
		if a.owner.Context().Err() == nil {
			a.owner.RunOnLoop(work())
		}
	})
}

// receiveBaseModel reads the base model that came, or tells that it could not be had.
func (a *Agent) receiveBaseModel(ref wire.BlobRef, data transfer.Storage, err error) {
	if err != nil {
		a.stepRoundMachine(round.ModelFetched{Base: ref.Hash, Failed: true})
		a.handlePulledModel(ref.Hash, nil, err)
		return
	}
	of := a.local // of the announced task, whose model it is; its rows may not fit
	if ref.Hash == a.baseModelHash {
		of = a.prepared.localTask
	}
	if of == nil || of.compiledTask == nil {
		a.handlePulledModel(ref.Hash, nil, errors.New("the task is another one by now"))
		return
	}
	want := of.compiledTask.Schema(wire.KindTraining).Len()
	a.startDataJob(func() func() {
		w := make([]float32, ref.Length/4)
		err := readBlob(ref, data, func(at int,
			piece []byte) error {
			return wire.DecodeVector(w[at/4:(at+len(piece))/4], piece)
		})
		if err == nil && len(w) != want {
			err = errors.New("the model has another size than the task's")
		}
		return func() {
			if err != nil {
				a.cfg.Logger.Warn("a model that was fetched cannot be used", "hash", ref.Hash.TopicLevel(), "err", err)
			}
			if ref.Hash == a.baseModelHash { // else the round is over, or is another agent's
				a.base = w
				a.stepRoundMachine(round.ModelFetched{Base: ref.Hash, Failed: err != nil})
			}
			a.handlePulledModel(ref.Hash, w, err)
		}
	})
}

// startRoundTraining computes the update of a round beside the owner. Work that release or a
// stop of the agent cuts short is thrown away.
func (a *Agent) startRoundTraining(e round.Train) {
	if e.Announcement.Kind == wire.KindTraining {
		a.cfg.Observer.Observe(ModelFetched{Version: e.Announcement.BaseModelVersion,
			Bytes: int(e.Announcement.BaseModel.Length)})
	}
	p, base, perStep := a.prepared.limitTrainingRows(e.Samples), a.base, a.pace.PerStep()
	if a.cfg.StepTime > 0 {
		perStep = a.cfg.StepTime
	}
	if e.Announcement.Kind == wire.KindTraining {
		a.newRows.noteTrainingStart(e.Position.Run, e.Position.Round, p)
	}
	a.checkDeviceRules()
	sizing := p.compiledTask.StepCountPolicy()
	steps, why := sizing.LocalSteps(perStep)
	if a.cfg.JudgeDevice != nil && a.deviceVerdict.MayWork() { // a round that has begun is finished
		steps, why = sizing.ReduceSteps(steps, why, a.deviceVerdict.LocalStepShare)
	}
	ctx, cease := context.WithCancel(a.owner.Context())
	a.cancelTraining = cease
	a.updateRequestCount++
	q := &updateRequest{a: a, ctx: ctx, cancelRound: cease, trainEffect: e, p: p, base: base, steps: steps,
		sizingReason: why,
		began:        a.owner.Now(),
		sequence:     a.updateRequestCount}
	switch {
	case e.Announcement.Kind == wire.KindStatistics:
		q.computeStatistics()
	case p.compiledTask.Task.Mixing.EndlessBlocks:
		a.answerFromEndlessBlock(q)
	default:
		q.trainFiniteBlock()
	}
}

// handleTrainedUpdate goes on with the update.
func (a *Agent) handleTrainedUpdate(e round.Train, u *trainedUpdate, fact Trained, err error) {
	if fact.LocalSteps > 0 {
		a.pace.Observe(fact.LocalSteps, fact.LocalStepsDuration)
		fact.StepTime = a.pace.PerStep()
		if a.cfg.StepTime > 0 {
			fact.StepTime = a.cfg.StepTime
		}
		u.StepTime = fact.StepTime.Seconds()
		a.cfg.Observer.Observe(fact)
	}
	if err != nil {
		a.cfg.Observer.Observe(TrainingFailed{e.Position.Round, err})
		a.stepRoundMachine(round.Trained{Run: e.Position.Run, Round: e.Position.Round,
			FailureReason: declineReasonOf(err)})
		return
	}
	if u.residualLost {
		a.cfg.Observer.Observe(ErrorFeedbackKept{Round: e.Position.Round, ResidualLost: true})
	}
	a.currentUpdate = u
	a.edgeMeasurements = u.EdgeMeasurements
	a.stepRoundMachine(round.Trained{Run: e.Position.Run, Round: e.Position.Round, UpdateDigest: u.Payload.Hash,
		HasEdgeReport: len(u.EdgeMeasurements.Edges) > 0})
}

func declineReasonOf(err error) wire.DeclineReason {
	switch d := (*learner.DivergenceError)(nil); {
	case errors.As(err, &d):
		return wire.DeclineDiverged
	case errors.Is(err, task.ErrNoSteps), errors.Is(err, task.ErrStopped):
		return wire.DeclineNoTime
	}
	return wire.DeclineBadData
}
