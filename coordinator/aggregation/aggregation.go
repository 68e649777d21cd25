package aggregation

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// reportedRisks returns the risks that the agents reported for the base model, one per contribution.
func reportedRisks(set []round.Contribution) []float64 {
	risks := make([]float64, len(set))
	for i, x := range set {
		risks[i] = x.ReportedRisk
	}
	return risks
}

// meanAndMedianRisk returns the mean and the median of risks. Both are NaN if risks is empty.
func meanAndMedianRisk(risks []float64) (mean, median float64) {
	if len(risks) == 0 {
		return math.NaN(), math.NaN()
	}
	sorted, sum := slices.Sorted(slices.Values(risks)), 0.0
	for _, r := range risks {
		sum += r
	}
	return sum / float64(len(risks)), (sorted[(len(risks)-1)/2] + sorted[len(risks)/2]) / 2
}

// Aggregate computes the next model from the contributions to a round, stores it and plans the next round. A crash at
// any point loses no data on disk. It may return events together with an error.
func (w *Aggregator) Aggregate(run wire.RunID, spool *store.UpdateSpool,
	e round.AggregateUpdates) (round.AggregationEnded, []observe.Event) {
	folded := round.AggregationEnded{Round: e.Round}
	var events []observe.Event
	if e.Plan.Kind == wire.KindStatistics {
		folded.NextPlan, events, folded.Err = w.aggregateStatistics(run, spool, e)
		return folded, events
	}
	leave := func(a wire.AgentID, f wire.UpdateFate) {
		if folded.FateByLeftOutAgent == nil {
			folded.FateByLeftOutAgent = map[wire.AgentID]wire.UpdateFate{}
		}
		folded.FateByLeftOutAgent[a] = f
	}
	began := w.now()
	told := round.SummarizeReportedRisks(reportedRisks(e.Contributions))
	if e.MostParticipantsDiverged || w.heldOutScorer == nil && e.Plan.BaseModelDiverged(told) {
		if back, events, ok := w.returnToEarlierModel(run, &e, told); ok || e.MostParticipantsDiverged {
			return back, events
		}
	}
	taken, left, err := w.aggregateGuarded(run, spool, e)
	for _, f := range left {
		// Do not suspend an agent whose update exceeded refuse_above but was not far above the usual norm.
		if f.Reason != LeftOutAbove || round.IsSpoilingNorm(f.Norm, f.UsualNorm) {
			folded.SpoilingAgents = append(folded.SpoilingAgents, f.Agent)
		}
		leave(f.Agent, fates[f.Reason])
		events = append(events, f)
	}
	if folded.Err = err; err != nil {
		return folded, events
	}
	if out := taken.agentsAtIndices(taken.ruleAssessment.ExcludedIndices); len(out) > 0 {
		for _, a := range out {
			leave(a, wire.FateLeftOutByRule)
		}
		events = append(events, UpdatesExcludedByRule{Round: e.Round, Rule: w.cfg.Round.Aggregation.Rule, Agents: out})
	}
	events = append(events, w.clippedEvents(&e, taken)...)
	version := e.Plan.BaseModelVersion + 1
	folded.NextPlan, err = w.storeModelAndPlanTraining(run, version, e.Plan.LocalStepOffset+w.scheduleStepsPerRound(),
		taken.modelVector,
		taken.serverState)
	if err != nil {
		return round.AggregationEnded{Round: e.Round, Err: err}, nil
	}
	events = append(events, w.recordAggregationInPlan(&folded.NextPlan, &e, taken, told)...)
	risks := reportedRisks(taken.contributions)
	for k, r := range risks {
		folded.AgentRisks = append(folded.AgentRisks, stop.AgentRisk{Agent: taken.contributions[k].Agent, Risk: r})
	}
	mean, median := meanAndMedianRisk(risks)
	ready := ModelReady{
		Round: e.Round, Version: version, Hash: folded.NextPlan.BaseModel.Hash, Bytes: int(w.baseModelBlob.Ref.Length),
		UpdateSpread: taken.updateSpread, AggregateNorm: taken.aggregateNorm, ModelStepNorm: taken.modelStepNorm,
		HeldOutScore: taken.heldOutScore, MeanReportedRisk: mean, MedianReportedRisk: median,
		AggregationDuration: w.now().Sub(began),
	}
	ready.RiskAssessment = w.riskMonitor.assess(&ready)
	folded.Measurements = ready.roundMeasurements()
	folded.NextPlan, folded.Err = w.planRestandardizationIfDue(folded.NextPlan)
	return folded, append(events, ready)
}

// recordAggregationInPlan records the aggregation in the plan of the next round, for comparison with later
// aggregations. It returns an event for each agent that sent several large updates in a row.
func (w *Aggregator) recordAggregationInPlan(next *round.Plan, e *round.AggregateUpdates, taken *aggregationAttempt,
	told round.ReportedRiskSummary) (events []observe.Event) {
	b := w.assessUpdateNorms(e)
	next.RecentAggregations = round.AppendPastAggregation(e.Plan.RecentAggregations, taken.heldOutRisk(), told,
		taken.updateNorms)
	next.FirstReportedRisks = cmp.Or(e.Plan.FirstReportedRisks, told)
	next.SuspectAgents = b.SuspectAgents(taken.contributions, taken.updateNorms)
	var ended []round.LargeNormAgent
	next.LargeNormAgents, ended = e.Plan.NextLargeNormAgents(e.Contributions, &b)
	for _, l := range b.LargeNormAgents {
		if l.ConsecutiveLargeNorms < largeFolds {
			continue
		}
		f := RepeatedLargeUpdates{Round: e.Round, Agent: l.Agent, ConsecutiveUpdates: l.ConsecutiveLargeNorms,
			SinceVersion: l.SinceModelVersion,
			Norm:         l.RecentNorms[len(l.RecentNorms)-1], UsualNorm: b.UsualNorm}
		for k, x := range taken.contributions {
			if x.Agent == l.Agent && x.Norm > 0 {
				f.ClippedNorm = taken.updateNorms[k] * x.ClippedNorm() / x.Norm
			}
		}
		events = append(events, f)
	}
	for _, l := range ended {
		if l.ConsecutiveLargeNorms >= largeFolds {
			events = append(events, RepeatedLargeUpdates{Round: e.Round, Agent: l.Agent, UsualNorm: b.UsualNorm})
		}
	}
	return events
}

// largeFolds is the number of consecutive large updates after which an agent is reported.
const largeFolds = 3

// returnToEarlierModel rejects the base model because its participants report that it diverged. It discards the updates
// and plans the next round on the newest earlier model in the archive. It returns false if the archive has no earlier
// model with the same standardisation.
func (w *Aggregator) returnToEarlierModel(run wire.RunID, e *round.AggregateUpdates,
	told round.ReportedRiskSummary) (round.AggregationEnded, []observe.Event, bool) {
	p, now := &e.Plan, w.compiledTask.Standardization()
	folded := round.AggregationEnded{Round: e.Round, SpoilingAgents: p.SuspectAgents,
		FateByLeftOutAgent: map[wire.AgentID]wire.UpdateFate{}}
	versions, err := w.folder.CurrentRunModels.Versions()
	if err != nil {
		return round.AggregationEnded{Round: e.Round, Err: err}, nil, false
	}
	var earlier *runs.StoredModel
	for _, v := range slices.Backward(versions) {
		m, err := w.folder.ReadModel(w.folder.CurrentRunModels, v)
		if err == nil && v < uint64(p.BaseModelVersion) &&
			m.MatchesSchema(w.compiledTask.UpdateSchema(wire.KindTraining)) &&
			slices.Equal(m.Standardization.Mean, now.Mean) && slices.Equal(m.Standardization.Scale, now.Scale) {
			earlier = m
			break
		}
	}
	if earlier == nil {
		return round.AggregationEnded{Round: e.Round, Err: fmt.Errorf(
			"%w: model %d cannot be replaced because no earlier model is archived",
			errDiverged, p.BaseModelVersion)}, nil, false
	}
	model := earlier.EncodeVector(w.compiledTask.UpdateSchema(wire.KindTraining))
	packed, err := w.archivedServerState(w.folder.CurrentRunModels, earlier.Version, wire.BlobDigest(model))
	if err != nil && !store.IsMissingOrDamaged(err) {
		return round.AggregationEnded{Round: e.Round, Err: err}, nil, false
	}
	state, _ := w.unpackServerState(packed)
	version := p.BaseModelVersion + 1
	next, err := w.storeModelAndPlanTraining(run, version, p.LocalStepOffset+w.scheduleStepsPerRound(), model, state)
	if err != nil {
		return round.AggregationEnded{Round: e.Round, Err: err}, nil, false
	}
	next.RecentAggregations, next.FirstReportedRisks, next.LargeNormAgents = p.RecentAggregations,
		p.FirstReportedRisks, p.LargeNormAgents
	for _, x := range e.Contributions {
		folded.FateByLeftOutAgent[x.Agent] = wire.FateRiskExploded
	}
	events := []observe.Event{
		ModelRejected{Round: e.Round, Version: p.BaseModelVersion, EarlierVersion: wire.ModelVersion(earlier.Version),
			NextVersion:        version,
			MedianReportedRisk: told.Median, SuspectAgents: p.SuspectAgents},
		ModelReady{Round: e.Round, Version: version, Hash: next.BaseModel.Hash, Bytes: int(w.baseModelBlob.Ref.Length),
			MeanReportedRisk: math.NaN(), MedianReportedRisk: math.NaN(), UpdateSpread: math.NaN(),
			AggregateNorm: math.NaN(),
			ModelStepNorm: math.NaN()}}
	folded.NextPlan, folded.Err = w.planRestandardizationIfDue(next)
	return folded, events, true
}

// fates maps each reason for leaving an update out of the model to the result (fate) that is sent to the update's
// agent.
var fates = map[LeaveOutReason]wire.UpdateFate{LeftOutNotFinite: wire.FateNotFinite, LeftOutRisk: wire.FateRiskExploded,
	LeftOutNorm: wire.FateDominantNorm, LeftOutAbove: wire.FateLeftOutByRule}

// updateSpread returns the root mean square distance of the clipped updates v_k, with contribution factors f_k, from
// their weighted mean v̄ = Σ f_k v_k / Σ f_k. It equals √(Σ f_k‖v_k‖²/Σ f_k − ‖v̄‖²). If all updates start from one
// base model, it is the consensus distance of the agents. The argument mean is ‖v̄‖²: see addSquaredMeanElements.
func updateSpread(set []round.Contribution, mean float64) float64 {
	var total, squares float64
	for _, x := range set {
		total += x.ContributionFactor
		squares += x.ContributionFactor * x.ClippedNorm() * x.ClippedNorm()
	}
	return math.Sqrt(max(0, squares/total-mean))
}

// addSquaredMeanElements adds the squares of some elements of the weighted mean of the updates to sum and returns the
// result. d contains the same elements of the aggregate that the rule "mean" computed.
func addSquaredMeanElements(sum float64, set []round.Contribution, d []float64, scale float64) float64 {
	total, draws := 0.0, 0
	for _, x := range set {
		total += x.ContributionFactor
		draws += x.DrawCount
	}
	toMean := float64(draws) / (scale * total)
	for _, x := range d {
		sum += x * toMean * x * toMean
	}
	return sum
}
