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

// fedavg simulates the algorithm FedAvg, with an aggregation in every round.
type fedavg[T learner.Float] struct {
	*runConstants[T]
	w, next    []T // shared parameters
	own        *personalModels[T]
	server     *server[T]
	sampler    round.IndexSampler
	places     []round.DrawnIndex // responding participants of the round
	simulators []*agentSimulator[T]
	block      int              // number of agents that a goroutine simulates at a time
	room       []*agentBlock[T] // buffers of all goroutines; nil with one goroutine
	shadow     *meanIterateTracker[T]
	sent       int64 // number of updates sent
}

// newFedAvg returns a simulation of FedAvg that uses at most the given number of goroutines.
func newFedAvg[T learner.Float](c *runConstants[T], goroutines int) *fedavg[T] {
	own := newPersonal(c)
	f := &fedavg[T]{runConstants: c, w: own.start(), own: own, block: blockSize(c)}
	f.next, f.server = make([]T, len(f.w)), newServer(c, len(f.w))
	if c.e.RecordMeanIterate || c.tape != nil {
		goroutines = 1 // recorded draws and the mean iterate depend on the order in which the agents are simulated
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

// blocksPerSimulator is the number of blocks of agents per goroutine that the other goroutines may compute ahead while
// one goroutine is suspended.
const blocksPerSimulator = 16

// blockSize returns the number of agents per block. A block is large enough to outweigh the cost of synchronisation,
// and small enough that its parameters fit into the CPU cache.
func blockSize[T learner.Float](c *runConstants[T]) int {
	// minimum amount of work for about ten microseconds; maximum number of elements for the CPU cache
	const numbers, cached = 100_000, 32 << 10
	d := float64(c.in.Problem.Model.ParameterCount())
	each := d * max(1, c.e.BatchSize.At(0, c.seed)) * c.e.LocalSteps.At(0, c.seed)
	return int(max(min(numbers/each, cached/d), 1))
}

// step simulates round i. The first round has the number 1.
func (f *fedavg[T]) step(i int) error {
	places := f.draw(i)
	switch {
	case len(places) == 0 && f.in.replay != nil && f.e.Response.StraggleUnit != StraggleRound:
		return lacksParticipants(i)
	case len(places) == 0:
		return nil // no agent responded, so the model is unchanged
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
		return nil // the round was abandoned, so the model is unchanged
	case err != nil:
		return err
	}
	f.w, f.next = f.next, f.w
	return nil
}

// draw returns the responding participants of round i.
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

// fold calls take with the result of each participant. The order of the calls does not depend on the number of
// goroutines.
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

// agentBlock holds the results of consecutive participants of a round.
type agentBlock[T learner.Float] struct {
	first        int // index of the first participant of the block in the round
	places       []round.DrawnIndex
	resultParams []T // parameters of all agents of the block, d per agent
	err          error
}

// compute simulates the agents of a block and stores their results.
func (f *fedavg[T]) compute(h *agentSimulator[T], b *agentBlock[T], i int) {
	d := len(f.w)
	b.resultParams, b.err = resize(b.resultParams, f.block*d), nil
	for n, p := range b.places {
		if b.err = f.agentResult(h, b.resultParams[n*d:][:d], p.Index, i); b.err != nil {
			return
		}
	}
}

// plan returns the plan of round i for the coordinator's aggregation.
func (f *fedavg[T]) plan(i int) round.Plan {
	p := round.Plan{Kind: wire.KindTraining, Exchange: f.e.Exchange}
	if f.e.Exchange == spec.ExchangeGradient {
		p.ServerStepSize = f.schedule.StepSizeAt(uint64(i))
	}
	return p
}

// agentResult simulates agent k in round i and stores the trained parameters, or the gradient, in dst.
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

// count returns the number of local steps of agent k in round i.
func (f *fedavg[T]) count(k, i int) int {
	if r := f.in.replay; r != nil {
		return r.count(k, i)
	}
	return int(f.e.LocalSteps.At(k, f.seed))
}

// stepWithMeanIterate simulates the local steps of an agent and adds the parameters of each step to the mean iterate.
func (f *fedavg[T]) stepWithMeanIterate(h *agentSimulator[T], dst []T, k, i int) error {
	steps := f.count(k, i)
	if steps != len(f.shadow.sums) {
		return &replayError{fmt.Errorf("steps.npy: agent %d takes %d steps in round %d, but shadow requires %d "+
			"(local_steps) from every agent", k, steps, i, len(f.shadow.sums))}
	}
	f.shadow.follow(dst)
	err := h.takeLocalSteps(dst, k, 1, steps)
	f.shadow.finish()
	return err
}

// model stores the current model in dst. Personal parameters have their initial values.
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
