package sim

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// feddec simulates Algorithm 1 of the FedDec paper. In iteration t, every agent takes a local step of size η_t and
// mixes its parameters with its neighbours. If (t+1) mod H = 0, the server then averages the models of L drawn agents,
// and all agents continue from the average.
type feddec[T learner.Float] struct {
	*runConstants[T]
	simulators []*agentSimulator[T] // one per agent, because the random generators are kept between server rounds
	z, mix     [][]T
	sent       [][]T // parameters that neighbours receive; nil means the exact parameters
	last       []T   // parameters from the last server round
	next       []T
	server     *server[T]
	own        *personalModels[T] // used only to evaluate personal models

	links   *d2d.Adjacency
	weights []float64 // edge weights in the current iteration
	clipped []float64 // edge weights after the clipping of flows
	up      []bool
	degrees []int
	pcg     rand.PCG // generator of the link failures
	rng     *rand.Rand
	sampler round.IndexSampler
	mean    []float64
	block   int

	goroutines int

	iterations int
	// consensusBeforeServer is the consensus distance before the server round of the last iteration. It is −1 if the
	// last iteration had no server round.
	consensusBeforeServer float64
	linkUpIterations      []int // number of iterations in which each link was up
	flows                 int64 // number of transfers over links, counted per direction
	uploads               int64
	downloads             int64
}

func newFedDec[T learner.Float](c *runConstants[T], goroutines int) *feddec[T] {
	f := &feddec[T]{runConstants: c, last: c.start(), own: newPersonal(c), goroutines: goroutines}
	if c.tape != nil {
		f.goroutines = 1 // recorded draws depend on the order of the agents
	}
	f.next, f.mean, f.server = make([]T, len(f.last)), make([]float64, len(f.last)), newServer(c, len(f.last))
	f.rng = rand.New(&f.pcg)
	for range c.agents {
		f.simulators = append(f.simulators, newHand(c))
		f.z = append(f.z, append([]T(nil), f.last...))
		f.mix = append(f.mix, make([]T, len(f.last)))
	}
	if m := c.in.Mixing; m != nil {
		f.links = m.Graph.Adjacency()
		f.weights = append([]float64(nil), m.EdgeWeights...)
		f.clipped = make([]float64, len(m.EdgeWeights))
		f.up, f.degrees, f.linkUpIterations = make([]bool, len(m.EdgeWeights)), make([]int, c.agents), make([]int,
			len(m.EdgeWeights))
	}
	if f.links != nil && c.e.Mixing.Codec != spec.CodecRaw {
		for k := range f.simulators {
			f.simulators[k].packing = newPacking[T](c.e.Mixing.Codec)
			f.sent = append(f.sent, make([]T, len(f.last)))
		}
	}
	return f
}

// step simulates iteration i−1 of Algorithm 1, which computes the agents' models z^i from z^(i−1). The first value of i
// is 2, because z^1 is the initial state.
func (f *feddec[T]) step(i int) error {
	t := i - 1
	f.iterations = t
	m := &f.e.Mixing
	block, at := m.blockPosition(t)/m.ServerEvery+1, m.blockPosition(t)%m.ServerEvery+1
	mixes := f.links != nil && at%m.Every == 0
	if f.links != nil {
		f.failLinks(t)
	}
	if err := f.each(func(k int) error { return f.local(k, t, block, at, mixes) }); err != nil {
		return err
	}
	f.block = block
	if mixes {
		f.countLinks()
		sent := f.z
		if f.sent != nil {
			sent = f.sent
		}
		weights := f.weights
		if m.Clip > 0 {
			weights = f.clipped
			_ = f.each(func(k int) error { // the function never returns an error
				d2d.ClipNodeFlowWeights(weights, k, sent, f.links, f.weights, m.Clip)
				return nil
			})
		}
		_ = f.each(func(k int) error { // the function never returns an error
			d2d.MixNode(f.mix[k], k, f.z, sent, f.links, weights)
			return nil
		})
		f.z, f.mix = f.mix, f.z
	}
	f.consensusBeforeServer = -1
	if m.isServerIteration(t) {
		return f.average(t)
	}
	return nil
}

// local simulates the local step of agent k in iteration t, and computes the vector that the neighbours receive. The
// parameter at is the number of the step within the block of steps between two server rounds.
func (f *feddec[T]) local(k, t, block, at int, mixes bool) error {
	h := f.simulators[k]
	if block != f.block { // a new server round changes the random draws of the agent
		h.loadAgent(k, block)
		h.steps.StepWeight, h.steps.Correction.Anchor = f.weight(k), f.last
		h.steps.BlockSteps = uint64(f.e.Mixing.ServerEvery)
		h.steps.GradientSteps = uint64(f.e.Mixing.Gradients.At(k, f.seed))
		if h.steps.GradientSteps == 0 {
			h.steps.GradientSteps = h.steps.BlockSteps
		}
		if h.packing != nil {
			h.packing.begin(f.seed, wire.RoundID(block), f.stream(k))
		}
	}
	switch {
	case h.recording != nil:
		h.recording.setRound(t)
	case h.replaying != nil:
		h.loadAgent(k, t)
	}
	h.steps.StepOffset = uint64(t - at)
	if err := h.takeLocalSteps(f.z[k], k, at, at); err != nil {
		return err
	}
	if mixes && f.sent != nil {
		copy(f.sent[k], f.z[k])
		h.packing.encodeAndDecode(f.sent[k])
	}
	return nil
}

// minParallelElements is the minimum number of elements per goroutine. With fewer elements, an additional goroutine is
// not worthwhile.
const minParallelElements = 20_000

// each calls do for every agent, with several calls at the same time. If agents fail, it returns the error of the first
// of them, in the order of the agents.
func (f *feddec[T]) each(do func(k int) error) error {
	n := len(f.simulators)
	parts := max(1, min(f.goroutines, n, n*len(f.last)/minParallelElements))
	errs := make([]error, parts)
	var group sync.WaitGroup
	for p := range parts {
		work := func() {
			for k := p * n / parts; k < (p+1)*n/parts && errs[p] == nil; k++ {
				errs[p] = do(k)
			}
		}
		if p < parts-1 {
			group.Go(work)
		} else {
			work()
		}
	}
	group.Wait()
	return cmp.Or(errs...)
}

// blockPosition returns the position of iteration t in the sequence of blocks. The first block begins at position 1,
// unless FirstBlock is set.
func (m *Mixing) blockPosition(t int) int {
	if m.FirstBlock > 0 {
		return t + m.ServerEvery - 1 - m.FirstBlock
	}
	return t
}

// isServerIteration reports whether the server averages in iteration t.
func (m *Mixing) isServerIteration(t int) bool { return (m.blockPosition(t)+1)%m.ServerEvery == 0 }

// countLinks counts the links that carry flows in this iteration.
func (f *feddec[T]) countLinks() {
	for e, w := range f.weights {
		if w != 0 {
			f.linkUpIterations[e]++
			f.flows += 2
		}
	}
}

// failLinks draws which links work in iteration t and sets the edge weights.
func (f *feddec[T]) failLinks(t int) {
	if r := f.in.replay; r != nil {
		if r.weights != nil {
			edges := len(f.linkUpIterations)
			f.weights = r.weights[(t-1)*edges : t*edges]
		}
		return
	}
	if f.e.Mixing.LinkUp == 1 {
		return
	}
	task.ReseedAgentRand(&f.pcg, f.seed, wire.RoundID(t), forLinks)
	for e := range f.up {
		f.up[e] = f.rng.Float64() < f.e.Mixing.LinkUp
	}
	f.in.Mixing.ComputeActiveWeights(f.weights, f.up, f.degrees)
	if f.tape != nil {
		f.tape.weights = append(f.tape.weights, f.weights...)
	}
}

// draw returns the participants of the server round of iteration t.
func (f *feddec[T]) draw(t int) []round.DrawnIndex {
	if f.in.replay != nil {
		return f.in.replay.places[t]
	}
	drawn, listed := f.e.Participants.inRound(f.block)
	if !listed {
		rng := round.NewDrawRand(f.seed, wire.RoundID(f.block))
		drawn = f.sampler.Draw(f.e.Sampling, f.agents, f.e.Participants.Count, nil, rng)
	}
	if f.tape != nil {
		f.tape.drawn(t, drawn)
	}
	return drawn
}

// average simulates the server round of iteration t (lines 8 to 11 of Algorithm 1). The server aggregates the models of
// the drawn agents and sends the result to all agents.
func (f *feddec[T]) average(t int) error {
	f.consensusBeforeServer = f.consensus()
	places := f.draw(t)
	if len(places) == 0 {
		return lacksParticipants(t)
	}
	f.uploads, f.downloads = f.uploads+int64(len(places)), f.downloads+int64(f.agents)
	plan := round.Plan{Kind: wire.KindTraining, Exchange: spec.ExchangeParameters}
	places = f.server.begin(f.block, plan, places)
	err := f.server.advance(f.next, f.last, func(take func(k int, v, base []T)) error {
		for k, p := range places {
			take(k, f.z[p.Index], f.last)
		}
		return nil
	})
	switch {
	case errors.Is(err, rule.ErrTooFewUpdates):
		return nil // the round was abandoned, so the agents continue with their own models
	case err != nil:
		return err
	}
	f.last, f.next = f.next, f.last
	for _, z := range f.z {
		copy(z, f.last)
	}
	return nil
}

// model stores the mean of all agents' models in dst.
func (f *feddec[T]) model(dst []float64) {
	clear(dst)
	for _, z := range f.z {
		for j, v := range z {
			dst[j] += float64(v) / float64(len(f.z))
		}
	}
}

// consensus returns (1/n)Σ‖z_i − z̄‖², the mean squared distance of the agents' models z_i from their mean z̄.
func (f *feddec[T]) consensus() float64 {
	f.model(f.mean)
	sum := 0.0
	for _, z := range f.z {
		for j, v := range z {
			sum += (float64(v) - f.mean[j]) * (float64(v) - f.mean[j])
		}
	}
	return sum / float64(len(f.z))
}

// measure records the bytes sent so far and the consensus distance. In a server iteration it records the distance
// before the averaging.
func (f *feddec[T]) measure(r *recorder, i int) error {
	if f.consensusBeforeServer >= 0 {
		r.set("consensus", f.consensusBeforeServer)
	} else {
		r.set("consensus", f.consensus())
	}
	r.setBytes(f.e, len(f.last), f.uploads, f.downloads, f.flows)
	at := make([]T, len(r.point))
	for j, v := range r.point {
		at[j] = T(v)
	}
	return f.own.measure(r, at, i, uint64(i))
}

// maxSpectrum is the maximum number of agents for which the second eigenvalue of the mixing matrix is computed, because
// the computation takes cubic time.
const maxSpectrum = 1000

// network returns the graph of the run with the share of iterations in which each link was up.
func (f *feddec[T]) network() *Network {
	m := f.in.Mixing
	if m == nil {
		return nil
	}
	n := &Network{MixingMatrix: m, Health: make([]float64, len(f.linkUpIterations)), SecondEigenvalue: math.NaN()}
	for e, up := range f.linkUpIterations {
		n.Health[e] = float64(up) / float64(max(f.iterations, 1))
	}
	if f.agents <= maxSpectrum && (f.in.replay == nil || !f.in.replay.lacksLinkModel) {
		n.SecondEigenvalue = m.SecondEigenvalue(f.e.Mixing.LinkUp)
	}
	return n
}
