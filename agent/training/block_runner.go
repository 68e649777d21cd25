package training

import (
	"context"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round/agentround"
)

// blockRunner executes one block of local steps and mixing on its own goroutine, which owns the parameters.
type blockRunner struct {
	mesh          *MeshAccess
	core          *part.AgentCore
	lockHandle    *lockHandle
	ctx           context.Context // context that was passed to runBlock
	trainEffect   agentround.StartTraining
	localSteps    LocalStepBlock
	machine       *d2d.MixingBlock[float32] // state machine of the block; nil if its creation failed
	parameters    []float32
	stepsTaken    uint64        // number of local steps taken so far
	computeTime   time.Duration // duration of local steps since the last answer to a round
	pendingEvents []d2d.Event

	onRoundAnswer func(s d2d.AnswerRound) // receives the parameters that a round has requested
	// The following channels and callbacks are used only by endless blocks.
	requests       chan *updateRequest
	restRequests   chan bool
	onBlockStarted func(joined bool)
	onSaveDue      func()
	pendingRequest *updateRequest // request of the round that waits for parameters; nil if there is none
}

// newBlockRunner returns the runner of a block of local steps. The parameter afford is the number of local steps
// without mixing, and joins is true if neighbours may have started the block already.
func (t *TrainingManager) newBlockRunner(e agentround.StartTraining, p *part.PreparedTask, steps LocalStepBlock,
	base []float32, afford int,
	joins bool,
	turn *lockHandle) (*blockRunner, error) {
	of := &p.CompiledTask.Task
	// Without neighbours, the block takes all local steps and then mixes once.
	every, mixings := uint64(afford), uint64(1)
	if of.Mixing.IntervalSteps > 0 {
		every, mixings = uint64(of.Mixing.IntervalSteps), uint64(of.Training.MaxLocalSteps/of.Mixing.IntervalSteps)
	}
	if of.Mixing.HasEndlessBlocks {
		mixings = 0
	}
	b := &blockRunner{mesh: &t.Mesh, core: t.core, lockHandle: turn, trainEffect: e, localSteps: steps,
		parameters: slices.Clone(base)}
	cfg := t.Mesh.MakeExchangeConfig(e, of, mixings)
	if traced, ok := steps.(TracedBlock); ok {
		cfg.Trace = traced.Trace()
	}
	if joins {
		cfg.JoinTimeout = joinRepeatIntervals * cfg.RepeatInterval
	}
	var err error
	b.machine, err = d2d.NewMixingBlock(d2d.MixingBlockConfig{StepsPerMixing: every,
		StepsUntilAnswer: uint64(of.Training.MaxLocalSteps),
		SaveInterval:     blockSaveInterval}, cfg, b.parameters)
	return b, err
}

// joinRepeatIntervals is the time for which an agent that rejoins a block waits for its neighbours' snapshots, in
// multiples of the repeat interval.
const joinRepeatIntervals = 20

// mixingStats returns the mixing statistics of the block so far.
func (b *blockRunner) mixingStats() d2d.MixingStats {
	if b.machine == nil {
		return d2d.MixingStats{}
	}
	return b.machine.Stats()
}

// runWhileSubscribed runs the block with a subscription to its neighbours' messages. It returns an error if the block
// ended before ctx.
func (b *blockRunner) runWhileSubscribed(ctx context.Context) error {
	filters := make([]string, 0, len(b.trainEffect.MixingPeers))
	for _, p := range b.trainEffect.MixingPeers {
		filters = append(filters, b.core.Topics.PeerPartsFilter(p.ID, b.trainEffect.MixingBlockRound))
	}
	if len(filters) > 0 {
		b.mesh.NeighborBrokerConn.Subscribe(mqtt.AtMostOnce, filters...)
		defer b.mesh.NeighborBrokerConn.Unsubscribe(filters...)
	}
	return b.runBlock(ctx)
}

// runBlock runs the loop of the block. After the last local step of a finite block, it continues to answer neighbours.
func (b *blockRunner) runBlock(ctx context.Context) error {
	if traced, ok := b.localSteps.(TracedBlock); ok {
		defer func() { traced.Ended(b.machine.Stats()) }()
	}
	b.ctx, b.pendingEvents = ctx, append(b.pendingEvents, d2d.Start{})
	for ctx.Err() == nil && !b.machine.HasFinished() {
		b.collectEvents() // Collect events even if local steps follow each other without a wait.
		if len(b.pendingEvents) == 0 {
			at, ok := b.machine.Deadline()
			if !ok || b.core.Loop.Now().Before(at) {
				b.lockHandle.release()
				b.mesh.BlockWaiter.Wait(ctx, at, nil)
				continue
			}
			b.pendingEvents = append(b.pendingEvents, d2d.Tick{})
		}
		ev := b.pendingEvents[0]
		b.pendingEvents = b.pendingEvents[1:]
		if err := b.stepMachine(ev); err != nil {
			return err
		}
	}
	return nil
}

// messageInbox returns the channel of neighbours' messages. It returns nil while the block is paused.
func (b *blockRunner) messageInbox() <-chan mqtt.Message {
	if b.machine.IsResting() {
		return nil
	}
	return b.mesh.BlockInbox
}

// collectEvents collects pending requests and messages. It collects requests first, because they apply before the next
// local step.
func (b *blockRunner) collectEvents() {
	if q, ok := host.TryReceive(b.requests); ok {
		b.acceptUpdateRequest(q)
	}
	if yes, ok := host.TryReceive(b.restRequests); ok {
		b.pendingEvents = slices.Insert(b.pendingEvents, 0, d2d.Event(d2d.RestRequirementChanged{MustRest: yes}))
	}
	for {
		msg, ok := host.TryReceive(b.messageInbox())
		if !ok {
			return
		}
		b.pendingEvents = append(b.pendingEvents, d2d.MessageReceived{Payload: msg.Payload})
	}
}

// acceptUpdateRequest stores a round's request for parameters. It replaces an earlier request.
func (b *blockRunner) acceptUpdateRequest(q *updateRequest) {
	b.pendingRequest = q
	b.pendingEvents = slices.Insert(b.pendingEvents, 0, d2d.Event(d2d.RoundAnswerRequested{}))
}

// stepMachine passes an event to the block's state machine and performs the resulting effects.
func (b *blockRunner) stepMachine(ev d2d.Event) error {
	for _, e := range b.machine.Step(b.core.Loop.Now(), ev) {
		switch e := e.(type) {
		case d2d.PublishMessage:
			// Ignore the error: neighbours request lost messages again.
			_ = b.mesh.NeighborBrokerConn.Publish(mqtt.Message{Topic: b.core.Topics.PeerPart(b.core.ID,
				b.trainEffect.MixingBlockRound,
				e.TopicPart),
				Payload: e.Payload})
		case d2d.TakeLocalSteps:
			if err := b.takeLocalSteps(e); err != nil {
				return err
			}
			b.pendingEvents = append(b.pendingEvents, d2d.LocalStepTaken{})
		case d2d.BlockStarted:
			b.onBlockStarted(e.JoinedFromSnapshots)
		case d2d.AnswerRound:
			b.onRoundAnswer(e)
			b.computeTime = 0
		case d2d.SaveBlock:
			b.onSaveDue()
		}
	}
	return nil
}

// takeLocalSteps takes local steps while it holds the device's training lock.
func (b *blockRunner) takeLocalSteps(e d2d.TakeLocalSteps) error {
	if err := b.lockHandle.acquire(b.ctx); err != nil {
		return err
	}
	began, waited := b.core.Loop.Now(), b.lockHandle.totalWait
	b.stepsTaken = e.Last
	err := b.localSteps.TakeSteps(b.parameters, e.First, e.Last)
	b.computeTime += b.core.Loop.Now().Sub(began) - (b.lockHandle.totalWait - waited)
	return err
}
