package d2d

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// MixingBlockConfig configures when a MixingBlock takes local steps, answers rounds and is saved.
type MixingBlockConfig struct {
	StepsPerMixing uint64 // number m of local steps between two mixing steps
	// StepsUntilAnswer is the number H of local steps between the event RoundAnswerRequested and the effect AnswerRound
	// in an endless block.
	StepsUntilAnswer uint64
	// SaveInterval is the time between two saves of an endless block.
	SaveInterval time.Duration
}

// MixingBlock combines a message exchange with local training steps. It determines when to take local steps, answer a
// round, save the state, and rest (pause).
//
// A finite block answers the round once, after its last step. An endless block (MixingConfig.BlockSteps is 0) answers
// each RoundAnswerRequested. A round of federated averaging is a finite block without neighbours: BlockSteps is 1, and
// StepsPerMixing is the number E_k of local steps of agent k.
//
// The host performs the effects and passes the events, as for a message exchange. While IsResting returns true, the
// host must hold back received messages.
type MixingBlock[T wire.Float] struct {
	cfg           MixingBlockConfig
	exchange      *messageExchange[T]
	endless       bool
	answered      bool
	issuedSteps   uint64 // number of local steps that the host has been asked to compute so far
	begun         bool
	resting       bool
	restRequested bool
	answerPending bool
	answerAtStep  uint64      // number of the local step after which the block answers the pending request
	savedAt       time.Time   // time of the last effect SaveBlock
	reportedStats MixingStats // counters as they were reported in the last answer
	effects       []Effect
}

// RoundAnswerRequested makes an endless block answer a round after StepsUntilAnswer more local steps. It
// replaces an earlier request.
type RoundAnswerRequested struct{}

// RestRequirementChanged sets whether an endless block must rest (pause). The block rests between two mixing steps, and
// only if it has no pending RoundAnswerRequested.
type RestRequirementChanged struct{ MustRest bool }

// StopBlock is delivered when the host stops the block.
type StopBlock struct{}

func (RoundAnswerRequested) event()   {}
func (RestRequirementChanged) event() {}
func (StopBlock) event()              {}

// TakeLocalSteps requests that the host performs the local steps First to Last on the parameters. Steps are counted
// from 1. The host responds with LocalStepTaken.
type TakeLocalSteps struct{ First, Last uint64 }

// BlockStarted is emitted when an endless block has its initial parameters. JoinedFromSnapshots is true if these
// parameters are the median of the neighbours' snapshots.
type BlockStarted struct{ JoinedFromSnapshots bool }

// AnswerRound makes the host answer the round with the current parameters. Stats and EdgeMeasurements cover the steps
// since the previous answer. EdgeMeasurements contains the edges with clipped flows, in the order of neighbour ids.
type AnswerRound struct {
	Stats            MixingStats
	EdgeMeasurements []wire.MixingEdgeMeasurement
}

// SaveBlock makes the host save the parameters and the number of local steps for a restart.
type SaveBlock struct{}

func (TakeLocalSteps) effect() {}
func (BlockStarted) effect()   {}
func (AnswerRound) effect()    {}
func (SaveBlock) effect()      {}

// NewMixingBlock returns a MixingBlock that updates the parameters x in place. It returns an error if the keys of a
// neighbour are invalid, and panics if the configuration is invalid.
func NewMixingBlock[T wire.Float](cfg MixingBlockConfig, mixing MessageExchangeConfig[T], x []T) (*MixingBlock[T],
	error) {
	if cfg.StepsPerMixing == 0 {
		panic("d2d: NewMixingBlock: StepsPerMixing is 0, but must be positive")
	}
	e, err := newMessageExchange(mixing, x)
	if err != nil {
		return nil, err
	}
	return &MixingBlock[T]{cfg: cfg, exchange: e, endless: mixing.BlockSteps == 0}, nil
}

// Stats returns the current counters.
func (b *MixingBlock[T]) Stats() MixingStats { return b.exchange.Stats() }

// HasFinished reports whether the block has answered its round and no neighbour may still need a message from the
// block.
func (b *MixingBlock[T]) HasFinished() bool { return b.answered }

// IsResting reports whether the block is resting (paused). The neighbours then continue without this block.
func (b *MixingBlock[T]) IsResting() bool { return b.resting }

// Deadline returns the time at which the caller must deliver the next Tick. It returns false if no Tick is needed.
func (b *MixingBlock[T]) Deadline() (time.Time, bool) {
	if b.resting {
		return time.Time{}, false
	}
	return b.exchange.Deadline()
}

// Step processes one event and returns the effects that the caller must perform, in order.
func (b *MixingBlock[T]) Step(now time.Time, ev Event) []Effect {
	b.effects = nil
	switch ev := ev.(type) {
	case RoundAnswerRequested:
		b.answerPending, b.answerAtStep = true, b.issuedSteps+b.cfg.StepsUntilAnswer
	case RestRequirementChanged:
		b.restRequested = ev.MustRest
	case StopBlock:
		if b.endless {
			b.emitEffect(SaveBlock{})
		}
		return b.effects
	case Tick:
		if !b.resting {
			b.performExchangeEffects(now, b.exchange.Step(now, ev))
		}
	case Start, LocalStepTaken, MessageReceived:
		b.performExchangeEffects(now, b.exchange.Step(now, ev))
	default:
		panic(fmt.Sprintf("d2d: unexpected event %T", ev))
	}
	if b.resting && !b.mustRest() {
		b.resting = false
		b.requestLocalSteps()
	}
	return b.effects
}

func (b *MixingBlock[T]) emitEffect(e Effect) { b.effects = append(b.effects, e) }

func (b *MixingBlock[T]) performExchangeEffects(now time.Time, effects []Effect) {
	var end []Effect
	for _, e := range effects {
		switch e := e.(type) {
		case computeLocalStep:
			b.continueBetweenMixings(now)
		case mixingEnded:
			end = append(end, AnswerRound(e))
			b.answered = len(b.exchange.peers) == 0
		default: // The host performs the effect PublishMessage.
			b.emitEffect(e)
		}
	}
	b.effects = append(b.effects, end...)
}

// continueBetweenMixings decides what to do between two mixing steps: answer the round, save, rest, or request the next
// local steps.
func (b *MixingBlock[T]) continueBetweenMixings(now time.Time) {
	if !b.endless {
		b.requestLocalSteps()
		return
	}
	save := now.Sub(b.savedAt) > b.cfg.SaveInterval
	if !b.begun {
		b.begun, save = true, true
		b.emitEffect(BlockStarted{b.Stats().JoinedFromSnapshots})
	}
	if b.answerPending && b.issuedSteps >= b.answerAtStep {
		all := b.Stats()
		b.emitEffect(AnswerRound{all.CountedSince(b.reportedStats), b.exchange.mixer.takeEdgeMeasurements()})
		b.answerPending, b.reportedStats, save = false, all, true
	}
	b.resting = b.mustRest()
	if save || b.resting {
		b.savedAt = now
		b.emitEffect(SaveBlock{})
	}
	if !b.resting {
		b.requestLocalSteps()
	}
}

func (b *MixingBlock[T]) mustRest() bool { return b.restRequested && !b.answerPending }

func (b *MixingBlock[T]) requestLocalSteps() {
	first := b.issuedSteps + 1
	b.issuedSteps += b.cfg.StepsPerMixing
	b.emitEffect(TakeLocalSteps{first, b.issuedSteps})
}
