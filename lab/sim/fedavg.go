package sim

import (
	"errors"
	"fmt"
	"sync"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// fedavg is the recursion with a server in every round.
type fedavg[T learner.Float] struct {
	*runConstants[T]
	w, next    []T // what agents share
	own        *personalModels[T]
	server     *server[T]
	sampler    round.IndexSampler
	places     []round.DrawnIndex // those of a round's participants that respond
	simulators []*agentSimulator[T]
	block      int              // agents that one hand takes at a time
	room       []*agentBlock[T] // of several hands
	shadow     *meanIterateTracker[T]
	sent       int64 // changes or gradients
}

// newFedAvg prepares a run for this many goroutines.
func newFedAvg[T learner.Float](c *runConstants[T], goroutines int) *fedavg[T] {
	own := newPersonal(c)
	f := &fedavg[T]{runConstants: c, w: own.start(), own: own, block: blockSize(c)}
	f.next, f.server = make([]T, len(f.w)), newServer(c, len(f.w))
	if c.e.RecordMeanIterate || c.tape != nil {
		goroutines = 1 // what they keep has an order too
	}
	for range max(1, min(goroutines, c.e.Participants.Count/f.block)) {
		f.simulators = append(f.simulators, newHand(c))
	}
	if n := len(f.simulators); n > 1 {
		for range n * blocksPerSimulator {
			f.room = append(f.room, &agentBlock[T]{})
		}
	}
	if c.e.RecordMeanIterate {
		steps := &f.simulators[0].steps
		f.shadow = newShadow(steps.Draws, int(c.e.LocalSteps.At(0, c.seed)), len(f.w))
		steps.Draws = f.shadow
	}
	return f
}

// blocksPerSimulator is how many blocks a hand may be ahead of one that is set aside.
const blocksPerSimulator = 16

// blockSize is a number of agents whose steps cost far more than passing them on, and whose parameters fit into a
// cache.
func blockSize[T learner.Float](c *runConstants[T]) int {
	const numbers, cached = 100_000, 32 << 10 // some ten microseconds and more; elements
	d := float64(c.in.Problem.Model.ParameterCount())
	each := d * max(1, c.e.BatchSize.At(0, c.seed)) * c.e.LocalSteps.At(0, c.seed)
	return int(max(min(numbers/each, cached/d), 1))
}

// step is round i, from 1.
func (f *fedavg[T]) step(i int) error {
	places := f.draw(i)
	switch {
	case len(places) == 0 && f.in.replay != nil && f.e.Response.StraggleUnit != StraggleRound:
		return lacksParticipants(i)
	case len(places) == 0:
		return nil // nobody responds: the model stays
	}
	f.sent += int64(len(places))
	if f.shadow != nil {
		f.shadow.begin()
	}
	places = f.server.begin(i, f.plan(i), places)
	err := f.server.advance(f.next, f.w,
		func(take func(k int, v, base []T)) error { return f.fold(i, places, take) })
	switch {
	case errors.Is(err, rule.ErrTooFewUpdates):
		return nil // the round is abandoned: the model stays
	case err != nil:
		return err
	}
	f.w, f.next = f.next, f.w
	return nil
}

// draw is the participants of round i that respond.
func (f *fedavg[T]) draw(i int) []round.DrawnIndex {
	if f.in.replay != nil {
		return f.in.replay.places[i]
	}
	places := f.responding(i)
	if f.tape != nil {
		f.tape.drawn(i, places)
	}
	return places
}

func (f *fedavg[T]) responding(i int) []round.DrawnIndex {
	drawn, listed := f.e.Participants.inRound(i)
	if !listed {
		drawn = f.sampler.Draw(f.e.Sampling, f.agents, f.e.Participants.Count, f.server.lengths,
			round.NewDrawRand(f.seed, wire.RoundID(i)))
	}
	if f.e.Response.StraggleUnit != StraggleRound {
		return drawn
	}
	f.places = f.places[:0]
	for _, p := range drawn {
		if rng := task.AgentRand(f.seed^forAbsence, wire.RoundID(i),
			f.stream(p.Index)); rng.Float64() < f.e.Response.Probability.At(p.Index, f.seed) {
			f.places = append(f.places, p)
		}
	}
	return f.places
}

// fold gives the server what all participants send, in the order of the fold whatever the number of hands.
func (f *fedavg[T]) fold(i int, places []round.DrawnIndex, take func(k int, v, base []T)) error {
	base := f.w
	if f.e.Exchange == spec.ExchangeGradient {
		base = nil
	}
	if len(f.simulators) == 1 || len(places) < 2*f.block {
		for k, p := range places {
			if err := f.agentResult(f.simulators[0], f.next, p.Index, i); err != nil {
				return err
			}
			take(k, f.next, base)
		}
		return nil
	}
	line := newPipeline((len(places)+f.block-1)/f.block, f.room, func(b *agentBlock[T]) error {
		if b.err != nil {
			return b.err
		}
		for n := range b.places {
			take(b.first+n, b.resultParams[n*len(f.w):][:len(f.w)], base)
		}
		return nil
	})
	var group sync.WaitGroup
	for _, h := range f.simulators {
		group.Go(func() {
			for n, b, ok := line.begin(); ok; n, b, ok = line.begin() {
				b.first, b.places = n*f.block, places[n*f.block:min((n+1)*f.block, len(places))]
				f.compute(h, b, i)
				line.finish(n, b)
			}
		})
	}
	group.Wait()
	return line.stopped
}

// agentBlock is some agents of a round, and where they come to.
type agentBlock[T learner.Float] struct {
	first        int // its place among all
	places       []round.DrawnIndex
	resultParams []T // d each
	err          error
}

// compute takes the parts of a block's agents.
func (f *fedavg[T]) compute(h *agentSimulator[T], b *agentBlock[T], i int) {
	d := len(f.w)
	b.resultParams, b.err = resize(b.resultParams, f.block*d), nil
	for n, p := range b.places {
		if b.err = f.agentResult(h, b.resultParams[n*d:][:d], p.Index, i); b.err != nil {
			return
		}
	}
}

// plan is what the coordinator's fold needs to know of round i.
func (f *fedavg[T]) plan(i int) round.Plan {
	p := round.Plan{Kind: wire.KindTraining, Exchange: f.e.Exchange}
	if f.e.Exchange == spec.ExchangeGradient {
		p.ServerStepSize = f.schedule.StepSizeAt(uint64(i))
	}
	return p
}

// agentResult writes where agent k comes to in round i to dst: ψ_k, or the gradient.
func (f *fedavg[T]) agentResult(h *agentSimulator[T], dst []T, k, i int) error {
	h.loadAgent(k, i)
	h.steps.StepWeight, h.steps.StepOffset = f.server.plan.StepWeight(f.e.Weighting, f.weight(k)),
		uint64(i-1)*f.maxLocalSteps
	if f.e.Exchange == spec.ExchangeGradient {
		h.steps.Gradient = dst
		return h.takeLocalSteps(f.w, k, 1, 1)
	}
	if f.shadow != nil {
		copy(dst, f.w)
		h.steps.Correction.Anchor = f.w
		return f.stepWithMeanIterate(h, dst, k, i)
	}
	return f.own.trainAgent(h, dst, f.w, k, i, f.count(k, i))
}

// count is E_k.
func (f *fedavg[T]) count(k, i int) int {
	if r := f.in.replay; r != nil {
		return r.count(k, i)
	}
	return int(f.e.LocalSteps.At(k, f.seed))
}

// stepWithMeanIterate takes an agent's steps before the eyes of the shadow.
func (f *fedavg[T]) stepWithMeanIterate(h *agentSimulator[T], dst []T, k, i int) error {
	steps := f.count(k, i)
	if steps != len(f.shadow.sums) {
		return &replayError{fmt.Errorf("steps.npy: agent %d takes %d steps in round %d; shadow needs local_steps, "+
			"%d, of all", k, steps, i, len(f.shadow.sums))}
	}
	f.shadow.follow(dst)
	err := h.takeLocalSteps(dst, k, 1, steps)
	f.shadow.finish()
	return err
}

// model writes w_i to dst, with the values of w_0 for what is the agents' own.
func (f *fedavg[T]) model(dst []float64) {
	w := f.w
	if len(w) < len(dst) {
		w = make([]T, len(dst))
		own := make([]T, f.own.parts.OwnElementCount())
		learner.SplitParameters(nil, own, f.own.parts, f.own.first)
		learner.JoinParameters(w, f.own.parts, f.w, own)
	}
	for j, v := range w {
		dst[j] = float64(v)
	}
}

func (f *fedavg[T]) measure(r *recorder, i int) error {
	r.setBytes(f.e, len(f.w), f.sent, f.sent, 0)
	if f.shadow != nil {
		r.set("shadow_excess_risk", f.shadow.mean(f.in.Problem.Objective.Excess))
	}
	return f.own.measure(r, f.w, i, uint64(i)*f.maxLocalSteps)
}

func resize[T learner.Float](v []T, n int) []T {
	if cap(v) < n {
		return make([]T, n)
	}
	return v[:n]
}
