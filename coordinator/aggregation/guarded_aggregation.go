package aggregation

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// aggregationAttempt is a model computed from a set of updates. The model may still be rejected.
type aggregationAttempt struct {
	contributions  []round.Contribution
	modelVector    []byte                // encoded parameters of the model
	updateNorms    []float64             // norms of the updates, each divided by the agent's step weight
	heldOutScore   *learner.Score        // score of the model; nil without held-out data
	updateSpread   float64               // RMS distance of the updates from their mean; NaN unless the rule is the mean
	aggregateNorm  float64               // Euclidean norm ‖D_i‖₂ of the aggregate D_i
	modelStepNorm  float64               // ‖w_i − w_{i−1}‖₂, the norm of the server optimiser's step
	serverState    [][]float64           // state of the server optimiser and the rule after this round
	ruleAssessment rule.UpdateAssessment // updates that the rule excluded or clipped
	rejectionCause error                 // reason for rejecting the model; nil if it is accepted
}

// heldOutRisk returns the model's risk on held-out data, or 0 without such data.
func (a *aggregationAttempt) heldOutRisk() float64 {
	if a.heldOutScore == nil {
		return 0
	}
	return a.heldOutScore.Risk
}

// Reasons for rejecting a model.
var (
	errNotFinite = errors.New("the new model contains parameters that are not finite")
	errExploded  = errors.New(
		"the risk (mean loss) of the new model on held-out data is more than 10 times the highest risk of the last " +
			"rounds")
	errDiverged = errors.New("the local steps of most participants have diverged from the base model")
)

// aggregateGuarded aggregates a set of updates. It rejects a model that is not finite or has diverged on held-out data.
//
// Updates above aggregation.refuse_above are left out first. Other updates are clipped to aggregation.clip and
// clip_above. If the resulting model is rejected, aggregateGuarded aggregates again without the suspiciously large
// updates, or without the largest update. If that model is also rejected, it returns an error.
//
// If round.robust is set and some updates outweigh all others, aggregateGuarded computes a second model without them.
// Held-out data select the better model. Without held-out data the second model is used, unless the rule requires more
// updates.
//
// It returns an event for each update that is left out. The result depends only on the set and the plan.
func (w *Aggregator) aggregateGuarded(run wire.RunID, spool *store.UpdateSpool,
	e round.AggregateUpdates) (*aggregationAttempt, []UpdateLeftOut, error) {
	unpacked, done, err := w.unpackSpool(e.Round, spool, e.Contributions)
	defer done()
	if err != nil {
		return nil, nil, err
	}
	b := w.assessUpdateNorms(&e)
	var left []UpdateLeftOut
	for _, k := range b.RefusedIndices {
		left = append(left, w.leftOutEvent(&e, e.Contributions[k], b.UsualNorm, LeftOutAbove))
	}
	all, err := w.tryAggregation(run, unpacked, e, b.KeptContributions, b.KeptNormsPerStepWeight)
	if err != nil {
		return nil, left, err
	}
	doubted, reason := suspectUpdateIndices(all.rejectionCause, &b)
	if len(doubted) == 0 {
		return all, left, nil
	}
	shorter := slices.Clone(left)
	for _, k := range doubted {
		shorter = append(shorter, w.leftOutEvent(&e, b.KeptContributions[k], b.UsualNorm, reason))
	}
	set, lengths := round.ContributionsWithoutIndices(b.KeptContributions, doubted),
		normsWithout(b.KeptNormsPerStepWeight, doubted)
	if len(set) == 0 {
		return nil, shorter, all.rejectionCause
	}
	rest, err := w.tryAggregation(run, unpacked, e, set, lengths)
	switch {
	case all.rejectionCause == nil && errors.Is(err, rule.ErrTooFewUpdates):
		return all, left, nil
	case err != nil:
		return nil, left, err
	case rest.rejectionCause == nil && (all.rejectionCause != nil || rest.heldOutRisk() <= all.heldOutRisk()):
		return rest, shorter, nil
	case all.rejectionCause == nil:
		return all, left, nil
	}
	return nil, shorter, fmt.Errorf("%w, even if the %d largest of the %d updates are excluded; if this continues "+
		"and all devices are honest, lower task.step_size", rest.rejectionCause, len(doubted), len(b.KeptContributions))
}

// assessUpdateNorms compares the norms of a round's updates with the usual norm.
func (w *Aggregator) assessUpdateNorms(e *round.AggregateUpdates) round.UpdateNormAssessment {
	r := &w.cfg.Round
	return e.Plan.AssessUpdateNorms(r.EffectiveAggregation(), r.UsesRobustAggregation, r.WeightPlacement,
		e.Contributions)
}

// suspectUpdateIndices returns the indices in b.KeptContributions of suspect updates, and the reason. The aggregation
// is repeated without them. The result is empty if no update is suspect.
func suspectUpdateIndices(fault error, b *round.UpdateNormAssessment) ([]int, LeaveOutReason) {
	switch {
	case fault == nil:
		return b.OutweighingIndices, LeftOutNorm
	case len(b.LargeNormIndices) == 0:
		b.LargeNormIndices = []int{largestNormIndex(b.KeptNormsPerStepWeight)}
	}
	if errors.Is(fault, errNotFinite) {
		return b.LargeNormIndices, LeftOutNotFinite
	}
	return b.LargeNormIndices, LeftOutRisk
}

// leftOutEvent returns an event for an update that is left out.
func (w *Aggregator) leftOutEvent(e *round.AggregateUpdates, x round.Contribution, usual float64,
	why LeaveOutReason) UpdateLeftOut {
	return UpdateLeftOut{Round: e.Round, Agent: x.Agent, Reason: why, UsualNorm: usual,
		Norm: e.Plan.NormPerStepWeight(w.cfg.Round.WeightPlacement, x)}
}

// clippedEvents returns one event for each bound that clipped any updates.
func (w *Aggregator) clippedEvents(e *round.AggregateUpdates, a *aggregationAttempt) (events []observe.Event) {
	by := w.cfg.Round.EffectiveAggregation()
	norm, above := UpdatesClipped{Round: e.Round, Reason: ClippedNorm}, UpdatesClipped{Round: e.Round,
		Reason: ClippedAbove}
	for k, x := range a.contributions {
		f := &above
		switch ClipReason(by.BoundingConfigKey(&x.UpdateMetadata)) {
		case "":
			continue
		case ClippedNorm:
			f = &norm
		}
		f.Agents = append(f.Agents, x.Agent)
		f.MaxNorm, f.LongestNorm = a.updateNorms[k]*x.ClippedNorm()/x.Norm, max(f.LongestNorm, a.updateNorms[k])
	}
	far := UpdatesClipped{Round: e.Round, Reason: ClippedRadius,
		Agents:  a.agentsAtIndices(a.ruleAssessment.OutsideRadiusIndices),
		MaxNorm: by.ClippingRadius}
	for _, x := range a.ruleAssessment.OutsideRadiusDistances {
		far.LongestNorm = max(far.LongestNorm, x)
	}
	for _, f := range []UpdatesClipped{norm, above, far} {
		if len(f.Agents) > 0 {
			events = append(events, f)
		}
	}
	return events
}

// agentsAtIndices returns the agents of the contributions at the given indices.
func (a *aggregationAttempt) agentsAtIndices(indices []int) (ids []wire.AgentID) {
	for _, k := range indices {
		ids = append(ids, a.contributions[k].Agent)
	}
	return ids
}

// tryAggregation aggregates a set of updates and scores the model. It returns an error if an update or the held-out
// data cannot be read.
func (w *Aggregator) tryAggregation(run wire.RunID, spool packedSpool, e round.AggregateUpdates,
	set []round.Contribution,
	lengths []float64) (*aggregationAttempt, error) {
	a := &aggregationAttempt{contributions: set, updateNorms: lengths, updateSpread: math.NaN()}
	var err error
	if a.serverState, err = w.loadServerState(run, e.Plan.BaseModelVersion, e.Plan.BaseModel.Hash); err != nil {
		return nil, err
	}
	if err := w.computeAttemptModel(a, w.newSpooledUpdateReader(spool, set), e.Plan.UpdateScale()); err != nil ||
		a.rejectionCause != nil {
		return a, err
	}
	if w.heldOutScorer == nil {
		return a, nil
	}
	score, err := w.heldOutScorer.scoreModel(a.modelVector)
	if err != nil {
		return nil, err
	}
	a.heldOutScore = &score
	base := 0.0
	if len(e.Plan.RecentAggregations) == 0 {
		of, err := w.heldOutScorer.scoreModel(w.baseModelBlob.Data)
		if err != nil {
			return nil, err
		}
		base = of.Risk
	}
	if round.RiskExploded(score.Risk, base, w.zeroModelRisk, e.Plan.RecentAggregations) {
		a.rejectionCause = fmt.Errorf("%w: its risk is %.4g", errExploded, score.Risk)
	}
	return a, nil
}

// computeAttemptModel computes the model of an attempt in strips of coordinates. This is possible because coordinates
// are independent once the rule has assessed the updates. No full vector of floats is held in memory.
func (w *Aggregator) computeAttemptModel(a *aggregationAttempt, u *spooledUpdateReader, scale float64) error {
	by, d, v, mean := w.cfg.Round.EffectiveAggregation(), make([]float64, min(strip, u.dimension)), make([]float32,
		min(strip, u.dimension)), 0.0
	a.modelVector = make([]byte, 0, len(w.baseModelBlob.Data))
	o, fold := optimizer.New(w.cfg.Round.ServerOptimizer), rule.New[float32](by)
	own := len(o.StateVectorNames())
	steps, kept := a.serverState[:own], a.serverState[own:]
	set := rule.UpdateSet[float32]{UpdateScale: scale, RuleState: kept, UpdateReader: u}
	for _, x := range a.contributions {
		set.Updates = append(set.Updates, x.UpdateMetadata)
	}
	var err error
	if a.ruleAssessment, err = fold.AssessUpdates(&set); err != nil {
		return err
	}
	err = u.forEachStrip(func(from, to int) error {
		d, v, state := d[:to-from], v[:to-from], make([][]float64, len(steps))
		for i, s := range steps {
			state[i] = s[from:to]
		}
		if err := fold.AggregatePart(d, &set, from); err != nil {
			return err
		}
		mean = addSquaredMeanElements(mean, a.contributions, d, scale)
		a.aggregateNorm = learner.AddSquares(a.aggregateNorm, d)
		o.Step(d, state)
		a.modelStepNorm = learner.AddSquares(a.modelStepNorm, d)
		if err := wire.DecodeVector(v, w.baseModelBlob.Data[4*from:4*to]); err != nil {
			return err
		}
		if err := round.ApplyStep(v, v, d); err != nil && a.rejectionCause == nil {
			a.rejectionCause = fmt.Errorf("%w: at or after parameter %d: %w", errNotFinite, from, err)
		}
		a.modelVector = wire.AppendVector(a.modelVector, v)
		return nil
	})
	if by.Rule == rule.Mean {
		a.updateSpread = updateSpread(a.contributions, mean)
	}
	a.aggregateNorm, a.modelStepNorm = math.Sqrt(a.aggregateNorm), math.Sqrt(a.modelStepNorm)
	return err
}

func (w *Aggregator) newSpooledUpdateReader(spool packedSpool, set []round.Contribution) *spooledUpdateReader {
	return &spooledUpdateReader{packedSpool: spool, contributions: set, dimension: len(w.baseModelBlob.Data) / 4}
}

// normsWithout returns the norms except those at the given indices.
func normsWithout(lengths []float64, indices []int) (rest []float64) {
	for k, l := range lengths {
		if !slices.Contains(indices, k) {
			rest = append(rest, l)
		}
	}
	return rest
}

func largestNormIndex(lengths []float64) int { return slices.Index(lengths, slices.Max(lengths)) }

// UpdateLeftOut reports that an accepted update is not in the model of a round, or that no model could be made.
type UpdateLeftOut struct {
	Round  wire.RoundID
	Agent  wire.AgentID
	Reason LeaveOutReason
	// Norm is the norm of the update and UsualNorm the usual norm (round.UsualNorm). Each is divided by the step weight
	// (the factor on the agent's local step size).
	Norm, UsualNorm float64
}

// Describe implements observe.Event.
func (e UpdateLeftOut) Describe(d *observe.EventDescription) {
	d.IncCounter(leftOutUpdates, string(e.Reason))
	d.Log(observe.Warn, "update left out of the model", "round", e.Round, "agent", e.Agent, "reason", e.Reason,
		"norm", observe.RoundToFourDigits(e.Norm), "usual", observe.RoundToFourDigits(e.UsualNorm))
}

var clippedUpdates = observe.CounterByLabel("updates_clipped_total",
	"Updates scaled down, by bound: aggregation.clip, aggregation.clip_above, or the radius of centered_clipping.",
	"reason", observe.NamesAsStrings(ClipReasons()))

// UpdatesClipped reports that updates of a round were clipped to MaxNorm.
type UpdatesClipped struct {
	Round  wire.RoundID
	Reason ClipReason
	Agents []wire.AgentID
	// LongestNorm is the largest norm before clipping and MaxNorm the norm after clipping, each divided by the agent's
	// step weight. For the bound "radius", both are distances from the last aggregate.
	LongestNorm, MaxNorm float64
}

// Describe implements observe.Event.
func (e UpdatesClipped) Describe(d *observe.EventDescription) {
	d.AddToCounter(clippedUpdates, float64(len(e.Agents)), string(e.Reason))
	d.Log(observe.Info, "updates clipped", "round", e.Round, "reason", e.Reason, "agents", e.Agents,
		"largest_norm", observe.RoundToFourDigits(e.LongestNorm), "max_norm", observe.RoundToFourDigits(e.MaxNorm))
}
