package d2d

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// MixingBlockConfig says when a MixingBlock takes local steps, answers and is saved.
type MixingBlockConfig struct {
	StepsPerMixing uint64 // m, the local steps between two mixings
	// StepsUntilAnswer is H, the local steps from RoundAnswerRequested to AnswerRound in a block without an end.
	StepsUntilAnswer uint64
	// SaveInterval is how long a block without an end goes on until it is saved again.
	SaveInterval time.Duration
}

// MixingBlock is an exchange and its local steps: it decides when they are taken, when the block answers a round, when
// it is saved and when it rests. A block with an end answers once, after its last step; one without an end
// (MixingConfig.BlockSteps is 0) answers each RoundAnswerRequested. A round of federated averaging is a block with an
// end and without neighbours, whose StepsPerMixing is E_k and whose BlockSteps is 1. Its host loops as that of an
// exchange, with the effects PublishMessage, TakeLocalSteps, BlockStarted, AnswerRound and SaveBlock, and the events
// Start, LocalStepTaken, MessageReceived, Tick, RoundAnswerRequested, RestRequirementChanged and StopBlock. While
// Resting() it keeps messages back.
type MixingBlock[T wire.Float] struct {
	cfg           MixingBlockConfig
	exchange      *messageExchange[T]
	endless       bool
	answered      bool
	issuedSteps   uint64 // local steps that were asked for
	begun         bool
	resting       bool
	restRequested bool
	answerPending bool        // a round waits for its answer
	answerAtStep  uint64      // the local step after which it has it
	savedAt       time.Time   // when the block was saved
	reportedStats MixingStats // in answers so far
	effects       []Effect
}

// RoundAnswerRequested says that a round asks a block without an end for what it has H local steps from now. A later
// round's takes the place of an earlier one's.
type RoundAnswerRequested struct{}

// RestRequirementChanged says whether a block without an end has to rest. It rests between two mixings, and only when
// no round waits for its answer.
type RestRequirementChanged struct{ MustRest bool }

// StopBlock says that the host ends the block.
type StopBlock struct{}

func (RoundAnswerRequested) event()   {}
func (RestRequirementChanged) event() {}
func (StopBlock) event()              {}

// TakeLocalSteps asks for the local steps First to Last, counted from 1, on the parameters; then LocalStepTaken.
type TakeLocalSteps struct{ First, Last uint64 }

// BlockStarted says that a block without an end has its first parameters: if it joined, the median of neighbours'
// snapshots.
type BlockStarted struct{ JoinedFromSnapshots bool }

// AnswerRound asks the host to answer the round with the parameters as they are. The counts are of the steps since the
// last answer, as are EdgeMeasurements: what this end has seen of the edges whose flows are bounded, by id.
type AnswerRound struct {
	Stats            MixingStats
	EdgeMeasurements []wire.MixingEdgeMeasurement
}

// SaveBlock asks the host to save the parameters and the number of steps taken, for a restart.
type SaveBlock struct{}

func (TakeLocalSteps) effect() {}
func (BlockStarted) effect()   {}
func (AnswerRound) effect()    {}
func (SaveBlock) effect()      {}

// NewMixingBlock returns the machine that takes local steps on x and mixes them, in place. The error is of the
// neighbours' keys. It panics on a configuration that does not validate.
func NewMixingBlock[T wire.Float](cfg MixingBlockConfig, mixing MessageExchangeConfig[T], x []T) (*MixingBlock[T],
	error) {
	if cfg.StepsPerMixing == 0 {
		panic("d2d: NewBlock: no local steps between two mixings")
	}
	e, err := newMessageExchange(mixing, x)
	if err != nil {
		return nil, err
	}
	return &MixingBlock[T]{cfg: cfg, exchange: e, endless: mixing.BlockSteps == 0}, nil
}

// Stats returns the counts so far.
func (b *MixingBlock[T]) Stats() MixingStats { return b.exchange.Stats() }

// HasFinished tells that the block has answered its round and has no neighbours, to whom it would go on to answer.
func (b *MixingBlock[T]) HasFinished() bool { return b.answered }

// IsResting tells whether the block rests: its neighbours go on without it, as without one that is asleep.
func (b *MixingBlock[T]) IsResting() bool { return b.resting }

// Deadline returns when the machine wants a Tick, if it does.
func (b *MixingBlock[T]) Deadline() (time.Time, bool) {
	if b.resting {
		return time.Time{}, false
	}
	return b.exchange.Deadline()
}

// Step takes one event and returns the effects to carry out, in order.
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
		panic(fmt.Sprintf("d2d: event %T", ev))
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
			end = append(end, AnswerRound(e)) // which takes time: the neighbours hear the rest first
			b.answered = len(b.exchange.peers) == 0
		default: // Publish
			b.emitEffect(e)
		}
	}
	b.effects = append(b.effects, end...)
}

// continueBetweenMixings is between two mixings: it answers, saves and rests, or takes the next steps.
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
