package sim

import (
	"sync"
	"sync/atomic"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// fedavg is the recursion with a server in every round (SPEC, "One recursion that contains them all").
type fedavg[T learner.Float] struct {
	*course[T]
	w, next []T
	acc     []float64
	lottery round.Lottery
	places  []round.Place // those of a round's participants that respond
	hands   []*hand[T]
	block   int // agents that one hand takes at a time
	shadow  *shadow[T]
}

// newFedAvg prepares a run for so many goroutines.
func newFedAvg[T learner.Float](c *course[T], goroutines int) *fedavg[T] {
	f := &fedavg[T]{course: c, w: c.start(), block: blockSize(c)}
	f.next, f.acc = make([]T, len(f.w)), make([]float64, len(f.w))
	if c.e.Shadow || c.tape != nil {
		goroutines = 1 // what they keep has an order too
	}
	for range max(1, min(goroutines, c.e.Participants/f.block)) {
		f.hands = append(f.hands, newHand(c))
	}
	if c.e.Shadow {
		f.shadow = newShadow(f.hands[0].descent.Draws, c.steps(0), len(f.w))
		f.hands[0].descent.Draws = f.shadow
	}
	return f
}

// blockSize is a number of agents whose steps cost far more than passing the turn on.
func blockSize[T learner.Float](c *course[T]) int {
	const numbers = 100_000 // some ten microseconds and more
	batch := max(1, c.e.BatchSize.At(0, c.seed))
	each := float64(c.in.Problem.Model.Params()) * batch * c.e.LocalSteps.At(0, c.seed)
	return int(min(max(numbers/each, 1), 4096))
}

// step is round i, from 1.
func (f *fedavg[T]) step(i int) error {
	places := f.draw(i)
	if len(places) == 0 {
		return nil // nobody responds: the model stays
	}
	total := 0
	for _, p := range places {
		total += p.Times
	}
	clear(f.acc)
	if f.shadow != nil {
		f.shadow.begin()
	}
	if err := f.fold(i, places, total); err != nil {
		return err
	}
	if err := round.Advance(f.next, f.w, f.acc); err != nil {
		return err
	}
	f.w, f.next = f.next, f.w
	return nil
}

// draw is the participants of round i that respond.
func (f *fedavg[T]) draw(i int) []round.Place {
	if f.in.replay != nil {
		return f.in.replay.places[i]
	}
	places := f.responding(i)
	if f.tape != nil {
		f.tape.drawn(i, places)
	}
	return places
}

func (f *fedavg[T]) responding(i int) []round.Place {
	rng := round.DrawSource(f.seed, wire.RoundID(i))
	places := f.lottery.WithoutReplacement
	if f.e.Sampling == round.WithReplacement {
		places = f.lottery.WithReplacement
	}
	drawn := places(f.agents, f.e.Participants, rng)
	if f.e.Response.Per != StraggleRound {
		return drawn
	}
	f.places = f.places[:0]
	for _, p := range drawn {
		if rng := task.Source(f.seed^forAbsence, wire.RoundID(i), f.stream(p.Index)); rng.Float64() < f.e.Response.Probability.At(p.Index, f.seed) {
			f.places = append(f.places, p)
		}
	}
	return f.places
}

// fold adds the changes of all participants to the sum, in id order whatever the number of hands.
func (f *fedavg[T]) fold(i int, places []round.Place, total int) error {
	plan := f.plan(i)
	if len(f.hands) == 1 || len(places) < 2*f.block {
		h := f.hands[0]
		h.changes = resize(h.changes, len(f.w))
		for _, p := range places {
			if err := f.change(h, h.changes, p.Index, i); err != nil {
				return err
			}
			round.Add(f.acc, f.coefficient(plan, p, total), h.changes)
		}
		return nil
	}
	var next atomic.Int64
	turn := newTurn()
	var group sync.WaitGroup
	for _, h := range f.hands {
		group.Go(func() {
			for {
				b := int(next.Add(1)) - 1
				if b*f.block >= len(places) {
					return
				}
				f.foldBlock(h, b, places[b*f.block:min((b+1)*f.block, len(places))], total, i, turn)
			}
		})
	}
	group.Wait()
	return turn.err
}

// foldBlock computes the changes of a block at once, and adds them when the blocks before have been.
func (f *fedavg[T]) foldBlock(h *hand[T], b int, places []round.Place, total, i int, turn *turn) {
	d, plan := len(f.w), f.plan(i)
	h.changes = resize(h.changes, f.block*d)
	var err error
	for n, p := range places {
		if err = f.change(h, h.changes[n*d:][:d], p.Index, i); err != nil {
			break
		}
	}
	turn.take(b, func(failed bool) error {
		if failed || err != nil {
			return err
		}
		for n, p := range places {
			round.Add(f.acc, f.coefficient(plan, p, total), h.changes[n*d:][:d])
		}
		return nil
	})
}

// plan is what the coordinator's fold needs to know of round i.
func (f *fedavg[T]) plan(i int) *round.Plan {
	if f.e.Exchange == Gradients {
		return &round.Plan{Kind: wire.KindTraining, Exchange: wire.ExchangeGradient, StepSize: f.schedule.At(uint64(i))}
	}
	return &round.Plan{Kind: wire.KindTraining, Exchange: wire.ExchangeParameters}
}

// coefficient is c_k of w_i = w_{i−1} + Σ c_k v_k.
func (f *fedavg[T]) coefficient(plan *round.Plan, p round.Place, total int) float64 {
	return plan.Coefficient(f.e.Weighting, p.Times, total, f.weight(p.Index))
}

// change writes v_k to dst: Δ_k, or the gradient.
func (f *fedavg[T]) change(h *hand[T], dst []T, k, i int) error {
	h.become(k, i)
	if f.e.Exchange == Gradients {
		h.descent.GradientAt(dst, f.w)
		if h.replaying != nil && h.replaying.err != nil {
			return &replayError{h.replaying.err}
		}
		return nil
	}
	copy(dst, f.w)
	if f.shadow != nil {
		f.shadow.follow(dst)
	}
	weight := 1.0
	if f.e.Weighting == round.WeightingStep {
		weight = f.weight(k)
	}
	steps := f.steps(k)
	if f.in.replay != nil {
		steps = f.in.replay.count(k, i)
	}
	if err := h.run(dst, k, steps, weight, uint64(i-1)*f.most); err != nil {
		return err
	}
	if f.shadow != nil {
		f.shadow.finish()
	}
	for j, w := range f.w {
		dst[j] -= w
	}
	return nil
}

// model writes w_i to dst.
func (f *fedavg[T]) model(dst []float64) {
	for j, v := range f.w {
		dst[j] = float64(v)
	}
}

func (f *fedavg[T]) measure(r *recorder) {
	if f.shadow != nil {
		r.set("shadow_excess_risk", f.shadow.mean(f.in.Problem.Objective.Excess))
	}
}

func resize[T learner.Float](v []T, n int) []T {
	if cap(v) < n {
		return make([]T, n)
	}
	return v[:n]
}
