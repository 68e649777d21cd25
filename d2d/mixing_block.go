package d2d

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// BlockConfig says when a Block takes local steps, answers and is saved.
type BlockConfig struct {
	StepsPerMixing uint64 // m, the local steps between two mixings
	// StepsUntilAnswer is H, the local steps from Wanted to Answer in a block without an end.
	StepsUntilAnswer uint64
	// SaveInterval is how long a block without an end goes on until it is saved again.
	SaveInterval time.Duration
}

// Block is an exchange and its local steps: it decides when they are taken, when the block answers a round, when it
// is saved and when it rests. A block with an end answers once, after its last step; one without an end
// (Config.Steps is 0) answers each Wanted. A round of federated averaging is a block with an end and without
// neighbours, whose Every is E_k and whose Steps is 1.
// Its host loops as that of an exchange, with the effects Publish, Take, Began, Answer and Save, and the events
// Start, Stepped, Message, Tick, Wanted, Barred and Stop. While Resting() it keeps messages back.
type Block[T wire.Float] struct {
	cfg           BlockConfig
	exchange      *exchange[T]
	endless       bool
	answered      bool
	issuedSteps   uint64 // local steps that were asked for
	begun         bool
	resting       bool
	restRequested bool
	answerPending bool        // a round waits for its answer
	answerAtStep  uint64      // the local step after which it has it
	savedAt       time.Time   // when the block was saved
	reported      MixingStats // in answers so far
	out           []Effect
}

// AnswerRequested says that a round asks a block without an end for what it has H local steps from now. A later round's
// takes the place of an earlier one's.
type AnswerRequested struct{}

// RestRequested says whether a block without an end has to rest. It rests between two mixings, and only when no round
// waits for its answer.
type RestRequested struct{ MustRest bool }

// Stop says that the host ends the block.
type Stop struct{}

func (AnswerRequested) event() {}
func (RestRequested) event()   {}
func (Stop) event()            {}

// TakeSteps asks for the local steps First to Last, counted from 1, on the parameters; then Stepped.
type TakeSteps struct{ First, Last uint64 }

// BlockStarted says that a block without an end has its first parameters: if it joined, the median of neighbours'
// snapshots.
type BlockStarted struct{ Joined bool }

// AnswerRound asks the host to answer the round with the parameters as they are. The counts are of the steps since the
// last answer, as is Seen: what this end has seen of the edges whose flows are bounded, by id.
type AnswerRound struct {
	Stats            MixingStats
	EdgeMeasurements []wire.EdgeMeasurement
}

// SaveBlock asks the host to save the parameters and the number of steps taken, for a restart.
type SaveBlock struct{}

func (TakeSteps) effect()    {}
func (BlockStarted) effect() {}
func (AnswerRound) effect()  {}
func (SaveBlock) effect()    {}

// NewBlock returns the machine that takes local steps on x and mixes them, in place. The error is of the neighbours'
// keys. It panics on a configuration that does not validate.
func NewBlock[T wire.Float](cfg BlockConfig, mixing ExchangeConfig[T], x []T) (*Block[T], error) {
	if cfg.StepsPerMixing == 0 {
		panic("d2d: NewBlock: no local steps between two mixings")
	}
	e, err := newExchange(mixing, x)
	if err != nil {
		return nil, err
	}
	return &Block[T]{cfg: cfg, exchange: e, endless: mixing.BlockSteps == 0}, nil
}

// Stats returns the counts so far.
func (b *Block[T]) Stats() MixingStats { return b.exchange.Stats() }

// Finished tells that the block has answered its round and has no neighbours, to whom it would go on to answer.
func (b *Block[T]) Finished() bool { return b.answered }

// Resting tells whether the block rests: its neighbours go on without it, as without one that is asleep.
func (b *Block[T]) Resting() bool { return b.resting }

// Deadline returns when the machine wants a Tick, if it does.
func (b *Block[T]) Deadline() (time.Time, bool) {
	if b.resting {
		return time.Time{}, false
	}
	return b.exchange.Deadline()
}

// Step takes one event and returns the effects to carry out, in order.
func (b *Block[T]) Step(now time.Time, ev Event) []Effect {
	b.out = nil
	switch ev := ev.(type) {
	case AnswerRequested:
		b.answerPending, b.answerAtStep = true, b.issuedSteps+b.cfg.StepsUntilAnswer
	case RestRequested:
		b.restRequested = ev.MustRest
	case Stop:
		if b.endless {
			b.emit(SaveBlock{})
		}
		return b.out
	case Tick:
		if !b.resting {
			b.perform(now, b.exchange.Step(now, ev))
		}
	case Start, LocalStepTaken, Message:
		b.perform(now, b.exchange.Step(now, ev))
	default:
		panic(fmt.Sprintf("d2d: event %T", ev))
	}
	if b.resting && !b.mustRest() {
		b.resting = false
		b.requestSteps()
	}
	return b.out
}

func (b *Block[T]) emit(e Effect) { b.out = append(b.out, e) }

func (b *Block[T]) perform(now time.Time, effects []Effect) {
	var end []Effect
	for _, e := range effects {
		switch e := e.(type) {
		case computeStep:
			b.betweenMixings(now)
		case mixingEnded:
			end = append(end, AnswerRound(e)) // which takes time: the neighbours hear the rest first
			b.answered = len(b.exchange.peers) == 0
		default: // Publish
			b.emit(e)
		}
	}
	b.out = append(b.out, end...)
}

// betweenMixings is between two mixings: it answers, saves and rests, or takes the next steps.
func (b *Block[T]) betweenMixings(now time.Time) {
	if !b.endless {
		b.requestSteps()
		return
	}
	save := now.Sub(b.savedAt) > b.cfg.SaveInterval
	if !b.begun {
		b.begun, save = true, true
		b.emit(BlockStarted{b.Stats().Joined})
	}
	if b.answerPending && b.issuedSteps >= b.answerAtStep {
		all := b.Stats()
		b.emit(AnswerRound{all.Since(b.reported), b.exchange.mixer.takeSeenEdges()})
		b.answerPending, b.reported, save = false, all, true
	}
	b.resting = b.mustRest()
	if save || b.resting {
		b.savedAt = now
		b.emit(SaveBlock{})
	}
	if !b.resting {
		b.requestSteps()
	}
}

func (b *Block[T]) mustRest() bool { return b.restRequested && !b.answerPending }

func (b *Block[T]) requestSteps() {
	first := b.issuedSteps + 1
	b.issuedSteps += b.cfg.StepsPerMixing
	b.emit(TakeSteps{first, b.issuedSteps})
}
