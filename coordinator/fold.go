package coordinator

import (
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// fold aggregates a closed round in a goroutine of its own.
func (c *Coordinator) fold(e round.Fold) {
	run, spool, work := c.runID, c.spools[e.Round], c.work
	c.start(func() func() {
		folded, facts := work.fold(run, spool, e)
		if c.cfg.Replica != nil && folded.Err == nil { // the model may be large, and the journal waits for it
			c.cfg.Replica.Prepare(c.owner.Context())
		}
		return func() {
			for _, f := range facts {
				c.cfg.Observer.Observe(f)
			}
			c.step(folded)
		}
	})
}

// risks are the mean and the median of the set's risks at the base model, as their signed manifests in the spool tell
// them; NaN if one cannot be read.
func risks(spool *store.Spool, set []round.Contribution) (mean, median float64) {
	told := map[wire.AgentID]float64{}
	for _, entry := range spool.Entries() {
		if e, err := wire.Open(entry.Meta); err == nil {
			if u, err := wire.DecodeUpdate(e.Body); err == nil {
				told[wire.AgentID(entry.Agent)] = u.RiskBefore
			}
		}
	}
	sum, all := 0.0, make([]float64, len(set))
	for i, x := range set {
		risk, ok := told[x.Agent]
		if !ok {
			return math.NaN(), math.NaN()
		}
		sum += risk
		all[i] = risk
	}
	slices.Sort(all)
	return sum / float64(len(set)), (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// fold makes the next model of the set by the round's rule and its optimiser, stores it and plans the next round. A
// restart in the middle of it loses nothing on disk. Facts may come with an error, too.
func (w *workbench) fold(run wire.RunID, spool *store.Spool, e round.Fold) (round.Folded, []Fact) {
	folded := round.Folded{Round: e.Round}
	var facts []Fact
	if e.Plan.Kind == wire.KindStatistics {
		folded.Next, facts, folded.Err = w.foldStatistics(run, spool, e)
		return folded, facts
	}
	leave := func(a wire.AgentID, f wire.Fate) {
		if folded.LeftOut == nil {
			folded.LeftOut = map[wire.AgentID]wire.Fate{}
		}
		folded.LeftOut[a] = f
	}
	began := w.now()
	taken, left, err := w.guard(run, spool, e)
	for _, f := range left {
		// else it is a rule of the round, which says nothing of the next one
		if f.Reason != LeftOutAbove || round.Spoils(f.Norm, f.Usual) {
			folded.Excluded = append(folded.Excluded, f.Agent)
		}
		leave(f.Agent, fates[f.Reason])
		facts = append(facts, f)
	}
	if folded.Err = err; err != nil {
		return folded, facts
	}
	if out := taken.agents(taken.weighed.Out); len(out) > 0 {
		for _, a := range out {
			leave(a, wire.FateAbove)
		}
		facts = append(facts, UpdatesPassedOver{Round: e.Round, Rule: w.cfg.Round.Aggregation.Rule, Agents: out})
	}
	facts = append(facts, w.clipped(&e, taken)...)
	version := e.Plan.Version + 1
	folded.Next, err = w.training(run, version, e.Plan.Offset+w.stepsPerRound(), taken.model, taken.state)
	if err != nil {
		return round.Folded{Round: e.Round, Err: err}, nil
	}
	folded.Next.Recent = round.Remember(e.Plan.Recent, taken.risk(), taken.lengths)
	mean, median := risks(spool, taken.set)
	ready := ModelReady{
		Round: e.Round, Version: version, Hash: folded.Next.Base.Hash, Bytes: int(w.base.ref.Length),
		Spread: taken.spread, Fold: taken.fold, Step: taken.step,
		Score: taken.score, Risk: mean, Median: median, FoldTook: w.now().Sub(began),
	}
	folded.Measured = ready.measured()
	if w.refreshes(version) {
		folded.Next, folded.Err = w.refresh(&folded.Next)
	}
	return folded, append(facts, ready)
}

// fates are those of updates that are left out.
var fates = map[LeaveOutReason]wire.Fate{LeftOutNotFinite: wire.FateNotFinite, LeftOutRisk: wire.FateRisk,
	LeftOutNorm: wire.FateNorm, LeftOutAbove: wire.FateAbove}

// FarAgent is an agent with its worst column, whose rows lie this many of the common standard deviations from the
// common mean.
type FarAgent struct {
	Agent      wire.AgentID
	Column     string
	Deviations float64
}

// foldStatistics standardises the task with the agents' moments and plans the first training round.
func (w *workbench) foldStatistics(run wire.RunID, spool *store.Spool, e round.Fold) (round.Plan, []Fact, error) {
	ready := StatisticsReady{Columns: len(w.problem.Task.Features) + 1}
	t, far, err := w.problem.WithStandardization(len(e.Set), func(take func(*learner.Moments)) error {
		ready.Rows = 0
		return eachMoments(spool, e.Set, func(m *learner.Moments) {
			ready.Rows += m.Rows
			take(m)
		})
	}, w.cfg.Clip)
	if err != nil {
		return round.Plan{}, nil, err
	}
	for _, f := range far {
		name := t.Target
		if f.Column < len(t.Features) {
			name = t.Features[f.Column]
		}
		ready.Far = append(ready.Far, FarAgent{e.Set[f.Device].Agent, name, f.Deviations})
	}
	if e.Plan.Base.Present() {
		next, err := w.refreshed(run, &e.Plan, t)
		return next, []Fact{ready}, err
	}
	model, from, err := w.earlier() // while an error can still leave all as it was
	if err != nil {
		return round.Plan{}, nil, err
	}
	if err := w.setTask(t); err != nil {
		return round.Plan{}, nil, err
	}
	next, err := w.training(run, 0, 0, wire.AppendVector(nil, w.first(model, from)), nil)
	return next, []Fact{ready}, err
}

// eachMoments reads the moments of the set, one agent's at a time.
func eachMoments(spool *store.Spool, set []round.Contribution, take func(*learner.Moments)) error {
	var buffer []byte
	for _, x := range set {
		payload, err := spool.Payload(string(x.Agent), buffer)
		if err != nil {
			return spoolFailed(x.Agent, err)
		}
		m, err := momentsOf(payload)
		if err != nil {
			return spoolFailed(x.Agent, err)
		}
		take(m)
		buffer = slices.Grow(payload[:0], len(payload))
	}
	return nil
}

// momentsOf decodes an update of a statistics round.
func momentsOf(payload []byte) (*learner.Moments, error) {
	v := make([]float64, len(payload)/8)
	if err := wire.DecodeVector(v, payload); err != nil {
		return nil, err
	}
	return learner.MomentsFromVector(v)
}

// spread is how far the v_k, as they count, are from their weighted mean v̄ = Σ f_k v_k / Σ f_k, as the root of the
// mean square √(Σ f_k‖v_k‖²/Σ f_k − ‖v̄‖²); of updates of one base model this is the consensus distance of the agents
// that sent them. mean is ‖v̄‖²: see addMean.
func spread(set []round.Contribution, mean float64) float64 {
	var total, squares float64
	for _, x := range set {
		total += x.Factor
		squares += x.Factor * x.Counted() * x.Counted()
	}
	return math.Sqrt(max(0, squares/total-mean))
}

// addMean adds the squares of elements of v̄ to a sum; d is what the mean makes of these elements.
func addMean(sum float64, set []round.Contribution, d []float64, scale float64) float64 {
	total, draws := 0.0, 0
	for _, x := range set {
		total += x.Factor
		draws += x.Times
	}
	toMean := float64(draws) / (scale * total)
	for _, x := range d {
		sum += x * toMean * x * toMean
	}
	return sum
}
