package training

import (
	"context"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
)

// blockHost is the host of one block's machine: one goroutine, which owns the parameters.
type blockHost struct {
	mesh        *Mesh
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
	requests       chan *request
	restRequests   chan bool
	onBlockStarted func(joined bool)
	save           func()
	pendingRequest *request // waits for its answer
}

// newBlockHost prepares a block; joins says that the others may be in it already.
func (t *Part) newBlockHost(e round.Train, p *part.PreparedTask, steps Block, base []float32, afford int, joins bool,
	turn *lockHandle) (*blockHost, error) {
	of := &p.CompiledTask.Task
	every, mixings := uint64(afford), uint64(1) // without neighbours
	if of.Mixing.IntervalSteps > 0 {
		every, mixings = uint64(of.Mixing.IntervalSteps), uint64(of.Training.MaxSteps/of.Mixing.IntervalSteps)
	}
	if of.Mixing.EndlessBlocks {
		mixings = 0
	}
	b := &blockHost{mesh: &t.Mesh, core: t.core, lockHandle: turn, trainEffect: e, localSteps: steps,
		parameters: slices.Clone(base)}
	cfg := t.Mesh.ExchangeConfig(e, of, mixings)
	if traced, ok := steps.(TracedBlock); ok {
		cfg.Trace = traced.Trace()
	}
	if joins {
		cfg.JoinTimeout = joinRepeatIntervals * cfg.RepeatInterval
	}
	var err error
	b.machine, err = d2d.NewBlock(d2d.BlockConfig{StepsPerMixing: every, StepsUntilAnswer: uint64(of.Training.MaxSteps),
		SaveInterval: blockSaveInterval}, cfg, b.parameters)
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
				b.mesh.Waiter.Wait(ctx, at, nil)
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
	if q, ok := host.TryReceive(b.requests); ok {
		b.acceptRequest(q)
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

// acceptRequest takes a round's question, in the place of an earlier round's.
func (b *blockHost) acceptRequest(q *request) {
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
