package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/agent/mesh"
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// errNoMesh is the failure of an agent that is to mix and was not told how.
var errNoMesh = errors.New("the task has agents mix, and this one has no way to neighbours: configure d2d")

// updateRequest is a round's request for an update.
type updateRequest struct {
	a                    *Agent
	ctx                  context.Context // of the round
	cancelRound          func()          // ends it
	trainEffect          round.Train
	p                    *part.PreparedTask
	base                 []float32 // with what is the agent's own, once the block begins
	ownParametersAtStart []float32 // at the beginning of the round; nil if nothing is
	steps                int       // E_k
	sizingReason         learner.StepCountReason
	began                time.Time
	sequence             uint64
}

// deliverUpdate makes the update of what a block has come to, saves it if it is to be sent, and tells the owner. The
// error is why there is none.
func (q *updateRequest) deliverUpdate(b *blockHost, s d2d.AnswerRound, err error) {
	if err == nil {
		err = b.lockHandle.acquire(q.ctx)
	}
	u, event := q.newUpdate(), Trained{}
	if q.p.CompiledTask.Task.Mixing.IntervalSteps > 0 {
		u.EdgeMeasurements = wire.EdgeMeasurements{BlockRound: q.trainEffect.EdgeBlockRound, Edges: s.EdgeMeasurements}
		event.MixingStats, event.MixedFor = &s.Stats, q.a.core.Loop.Now().Sub(q.began)
	}
	if err == nil {
		began := q.a.core.Loop.Now()
		var out task.LocalOutcome[float32]
		if out, err = b.localSteps.OutcomeFrom(q.base, b.parameters); err == nil {
			q.savePersonalParameters(&out)
			event.LocalSteps, event.RiskBefore, event.RiskAfter = out.Steps, out.RiskBefore, out.RiskAfter
			u.LocalSteps, u.RiskBefore, u.RiskAfter = uint32(out.Steps), out.RiskBefore, out.RiskAfter
			err = q.a.upload.Pack(u, &q.trainEffect, q.p.CompiledTask, out.Vector)
		}
		event.LocalStepsDuration = b.computeTime + q.a.core.Loop.Now().Sub(began)
		u.CheapToRecompute = q.p.CompiledTask.Task.Training.Exchange == spec.ExchangeGradient &&
			event.LocalStepsDuration < maxCheapRecomputeTime
	}
	if held := q.p.HeldOutRows; err == nil && held != nil {
		score := q.p.CompiledTask.Model.Score(q.base, q.p.CompiledTask.RiskSample(held, q.a.sampleSeed(&q.trainEffect)))
		if q.p.View.Err() == nil {
			event.HeldOutScore = &score
		}
	}
	if scorer, scores := b.localSteps.(Scorer); err == nil && scores {
		var lost error // the round does without
		if event.HeldOutScore, lost = scorer.Score(q.base); lost != nil {
			q.a.cfg.Logger.Warn("the model could not be scored", "err", lost)
		}
	}
	b.lockHandle.release()
	event.LockWait, b.lockHandle.totalWait = b.lockHandle.totalWait, 0
	if err == nil && !u.CheapToRecompute {
		q.save(u)
	}
	q.deliverResult(u, event, q.p.FailureCause(err))
}

// newUpdate returns an update without its payload.
func (q *updateRequest) newUpdate() *part.Update {
	e := &q.trainEffect
	return &part.Update{Sequence: q.sequence, Epoch: e.Position.Epoch, Run: e.Position.Run, Round: e.Position.Round,
		Update: wire.Update{Kind: e.Announcement.Kind, Base: e.Announcement.BaseModel.Hash,
			Samples: q.a.cfg.Trainer.Rows(q.p.TrainingRows)}}
}

// maxCheapRecomputeTime is the longest time in which a gradient is computed again after a restart, and is not saved.
const maxCheapRecomputeTime = 50 * time.Millisecond

// save stores an update for the coordinator on disk. An update for neighbours only stays in memory.
func (q *updateRequest) save(u *part.Update) {
	if over := func() bool { return q.ctx.Err() != nil }; q.trainEffect.MustUpload && !over() {
		q.a.upload.Save(u, over)
	}
}

// fail tells the owner of a block that did not begin.
func (q *updateRequest) fail(err error) {
	q.a.core.Loop.Go(func() { q.deliverResult(&part.Update{}, Trained{}, err) })
}

// deliverResult has the owner go on with an update, unless its round is over.
func (q *updateRequest) deliverResult(u *part.Update, event Trained, err error) {
	event.Round, event.Version, event.Sizing = q.trainEffect.Position.Round,
		q.trainEffect.Announcement.BaseModelVersion,
		q.sizingReason
	_ = q.a.core.Loop.RunOnLoopContext(q.ctx, func() { // else the round is over, and nobody asks
		if q.ctx.Err() == nil {
			if err != nil {
				q.cancelRound()
			}
			q.a.handleTrainedUpdate(q.trainEffect, u, event, err)
		}
	})
}

// trainFiniteBlock takes the local steps of a block with an end, in the place of the one under way. Its goroutine
// outlives the update where neighbours may need this agent's snapshots until the round is over.
func (q *updateRequest) trainFiniteBlock() {
	a := q.a
	// a tenth of the time until the round's deadline is left for sending
	timely, cancel := a.core.Loop.WithDeadline(q.ctx,
		q.trainEffect.Deadline.Add(-q.trainEffect.Deadline.Sub(a.core.Loop.Now())/10))
	a.trainingJobs.Do(func() {
		defer cancel()
		defer a.watchdog.watch(q.ctx)()
		turn := a.newLockHandle() // what waits for it has no parameters of its own yet
		if err := turn.acquire(timely); err != nil {
			q.deliverResult(&part.Update{}, Trained{}, fmt.Errorf("the device trains for another federation: %w",
				task.ErrNoSteps))
			return
		}
		defer turn.release()
		var steps Block
		err := q.setPersonalParameters(timely)
		if err == nil {
			steps, err = a.newBlock(timely, q.trainEffect, q.p, q.base, q.ownParametersAtStart, q.steps,
				q.trainEffect.Position.Round,
				q.trainEffect.Announcement.Seed,
				turn)
		}
		if err != nil {
			q.deliverResult(&part.Update{}, Trained{}, err)
			return
		}
		b, err := a.newBlockHost(q.trainEffect, q.p, steps, q.base, q.steps, false, turn)
		if err == nil {
			b.answerRound = func(s d2d.AnswerRound) { q.deliverUpdate(b, s, nil) }
			err = b.runSubscribed(q.ctx)
		}
		if err != nil {
			q.deliverUpdate(b, d2d.AnswerRound{Stats: b.stats()}, err)
		}
	})
}

// computeStatistics computes an agent's part of a statistics round.
func (q *updateRequest) computeStatistics() {
	q.a.core.DataJobs.Do(func() {
		defer q.a.watchdog.watch(q.ctx)()
		u, turn := q.newUpdate(), q.a.newLockHandle()
		if turn.acquire(q.ctx) != nil {
			return // the round is over
		}
		v, err := q.a.cfg.Trainer.Moments(q.p.CompiledTask, q.p.TrainingRows)
		turn.release()
		if err == nil {
			err = u.SetPayload(wire.AppendVector(nil, v), q.p.CompiledTask.Schema(wire.KindStatistics).Hash())
		}
		if err == nil {
			q.save(u)
		}
		q.deliverResult(u, Trained{}, q.p.FailureCause(err))
	})
}

// newBlock prepares the local steps of a block, whose draws are those of a round.
func (a *Agent) newBlock(ctx context.Context, e round.Train, p *part.PreparedTask, base, own []float32, steps int,
	draws wire.RoundID, seed uint64, turn *lockHandle) (Block, error) {
	if !a.mesh.CanMix() && len(e.MixingPeers) > 0 {
		return nil, errNoMesh
	}
	return a.cfg.Trainer.Block(ctx, e.EdgeBlockRound, p.CompiledTask, task.LocalJob[float32]{
		Base: base, Samples: p.TrainingRows, StepWeight: e.StepWeight, StepOffset: e.Announcement.StepOffset,
		Steps: steps,
		Rand:  task.AgentRand(seed, draws, task.AgentRandomKey(a.cfg.ID)), RiskSampleSeed: a.sampleSeed(&e),
		OwnParameters: own, OwnRand: task.AgentRand(task.PersonalStepsSeed(seed), draws, task.AgentRandomKey(a.cfg.ID)),
		Stop: func() bool { turn.yieldBetweenSteps(ctx); return false },
	})
}

// sampleSeed is the seed of the rows on which risks are reported.
func (a *Agent) sampleSeed(e *round.Train) uint64 {
	return task.RiskSampleSeed(e.Announcement.Seed, task.AgentRandomKey(a.cfg.ID))
}

// blockHost is the host of one block's machine: one goroutine, which owns the parameters.
type blockHost struct {
	mesh        *mesh.Mesh
	core        *part.Core
	lockHandle  *lockHandle
	ctx         context.Context // of run
	trainEffect round.Train
	localSteps  Block
	machine     *d2d.Block[float32] // nil if it could not be made
	parameters  []float32
	stepsTaken  uint64        // local steps so far
	computeTime time.Duration // in them, since the last answer
	events      []d2d.Event

	answerRound func(s d2d.AnswerRound) // the round; the parameters are as it wants them
	// Where blocks have no end, what the agent's owner says, and how to begin and save the block.
	updateRequests chan *updateRequest
	restRequests   chan bool
	onBlockStarted func(joined bool)
	save           func()
	pendingRequest *updateRequest // waits for its answer
}

// newBlockHost prepares a block; joins says that the others may be in it already.
func (a *Agent) newBlockHost(e round.Train, p *part.PreparedTask, steps Block, base []float32, afford int, joins bool,
	turn *lockHandle) (*blockHost, error) {
	t := &p.CompiledTask.Task
	every, mixings := uint64(afford), uint64(1) // without neighbours
	if t.Mixing.IntervalSteps > 0 {
		every, mixings = uint64(t.Mixing.IntervalSteps), uint64(t.Training.MaxSteps/t.Mixing.IntervalSteps)
	}
	if t.Mixing.EndlessBlocks {
		mixings = 0
	}
	b := &blockHost{mesh: a.mesh, core: a.core, lockHandle: turn, trainEffect: e, localSteps: steps,
		parameters: slices.Clone(base)}
	cfg := a.mesh.ExchangeConfig(e, t, mixings)
	if traced, ok := steps.(TracedBlock); ok {
		cfg.Trace = traced.Trace()
	}
	if joins {
		cfg.JoinTimeout = joinRepeatIntervals * cfg.RepeatInterval
	}
	var err error
	b.machine, err = d2d.NewBlock(d2d.BlockConfig{StepsPerMixing: every, StepsUntilAnswer: uint64(t.Training.MaxSteps),
		SaveInterval: blockSaveInterval},
		cfg, b.parameters)
	return b, err
}

// joinRepeatIntervals is how many repeat intervals an agent that comes back waits for a neighbour's snapshot.
const joinRepeatIntervals = 20

// stats are the counts so far.
func (b *blockHost) stats() d2d.MixingStats {
	if b.machine == nil {
		return d2d.MixingStats{}
	}
	return b.machine.Stats()
}

// runSubscribed runs the block, with what comes from its neighbours.
// The error is why it went no further before ctx ended.
func (b *blockHost) runSubscribed(ctx context.Context) error {
	filters := make([]string, 0, len(b.trainEffect.MixingPeers))
	for _, p := range b.trainEffect.MixingPeers {
		filters = append(filters, b.core.Topics.PeerPartsFilter(p.ID, b.trainEffect.EdgeBlockRound))
	}
	if len(filters) > 0 {
		b.mesh.Conn.Subscribe(mqtt.AtMostOnce, filters...)
		defer b.mesh.Conn.Unsubscribe(filters...)
	}
	return b.run(ctx)
}

// run is the block's loop. After the last step of a block with an end it goes on answering the neighbours.
func (b *blockHost) run(ctx context.Context) error {
	if traced, ok := b.localSteps.(TracedBlock); ok {
		defer func() { traced.Ended(b.machine.Stats()) }()
	}
	b.ctx, b.events = ctx, append(b.events, d2d.Start{})
	for ctx.Err() == nil && !b.machine.Finished() {
		b.collectEvents() // steps that wait for nobody would go on without
		if len(b.events) == 0 {
			at, ok := b.machine.Deadline()
			if !ok || b.core.Loop.Now().Before(at) {
				b.lockHandle.release()
				b.mesh.BlockWaiter.Wait(ctx, at, nil)
				continue
			}
			b.events = append(b.events, d2d.Tick{})
		}
		ev := b.events[0]
		b.events = b.events[1:]
		if err := b.step(ev); err != nil {
			return err
		}
	}
	return nil
}

// messages are the neighbours', which are kept back from a block that rests.
func (b *blockHost) messages() <-chan mqtt.Message {
	if b.machine.Resting() {
		return nil
	}
	return b.mesh.Inbox
}

// collectEvents takes what has come so far. The owner's words are for the moment between the steps that are taken and
// the next.
func (b *blockHost) collectEvents() {
	if q, ok := host.TryReceive(b.updateRequests); ok {
		b.acceptUpdateRequest(q)
	}
	if yes, ok := host.TryReceive(b.restRequests); ok {
		b.events = slices.Insert(b.events, 0, d2d.Event(d2d.RestRequested{MustRest: yes}))
	}
	for {
		msg, ok := host.TryReceive(b.messages())
		if !ok {
			return
		}
		b.events = append(b.events, d2d.Message{Payload: msg.Payload})
	}
}

// acceptUpdateRequest takes a round's question, in the place of an earlier round's.
func (b *blockHost) acceptUpdateRequest(q *updateRequest) {
	b.pendingRequest = q
	b.events = slices.Insert(b.events, 0, d2d.Event(d2d.AnswerRequested{}))
}

// step gives the machine an event and does what it asks for.
func (b *blockHost) step(ev d2d.Event) error {
	for _, e := range b.machine.Step(b.core.Loop.Now(), ev) {
		switch e := e.(type) {
		case d2d.Publish:
			// the neighbours ask for a message that is not sent
			_ = b.mesh.Conn.Publish(mqtt.Message{Topic: b.core.Topics.Peer(b.core.ID, b.trainEffect.EdgeBlockRound,
				e.Part),
				Payload: e.Payload})
		case d2d.TakeSteps:
			if err := b.takeLocalSteps(e); err != nil {
				return err
			}
			b.events = append(b.events, d2d.LocalStepTaken{})
		case d2d.BlockStarted:
			b.onBlockStarted(e.Joined)
		case d2d.AnswerRound:
			b.answerRound(e)
			b.computeTime = 0
		case d2d.SaveBlock:
			b.save()
		}
	}
	return nil
}

// takeLocalSteps takes local steps.
func (b *blockHost) takeLocalSteps(e d2d.TakeSteps) error {
	if err := b.lockHandle.acquire(b.ctx); err != nil {
		return err
	}
	began, waited := b.core.Loop.Now(), b.lockHandle.totalWait
	b.stepsTaken = e.Last
	err := b.localSteps.Take(b.parameters, e.First, e.Last)
	b.computeTime += b.core.Loop.Now().Sub(began) - (b.lockHandle.totalWait - waited)
	return err
}
