package coordinator

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// aggregateRound aggregates a closed round in a goroutine of its own.
func (c *Coordinator) aggregateRound(e round.Aggregate) {
	run, spool, work := c.runID, c.spools[e.Round], c.modelState
	c.runInBackground(func() func() {
		folded, events := work.aggregate(run, spool, e)
		if c.cfg.FolderReplicator != nil && folded.Err == nil { // the model may be large, and the journal waits for it
			c.cfg.FolderReplicator.Prepare(c.ownerLoop.Context())
		}
		return func() {
			for _, f := range events {
				c.cfg.Observer.Observe(f)
			}
			c.stepMachine(folded)
		}
	})
}

// reportedRisks returns the risks of the base model that the agents reported in the signed manifests of their updates.
func reportedRisks(spool *store.Spool) map[wire.AgentID]float64 {
	reported := map[wire.AgentID]float64{}
	for _, entry := range spool.Entries() {
		if e, err := wire.ParseEnvelope(entry.SignedManifest); err == nil {
			if u, err := wire.DecodeUpdate(e.Body); err == nil {
				reported[wire.AgentID(entry.Agent)] = u.RiskBefore
			}
		}
	}
	return reported
}

// reportedRisksOfSet returns the reported risks of a set; nil if one of them is missing.
func reportedRisksOfSet(reported map[wire.AgentID]float64, set []round.Contribution) []float64 {
	all := make([]float64, len(set))
	for i, x := range set {
		risk, ok := reported[x.Agent]
		if !ok {
			return nil
		}
		all[i] = risk
	}
	return all
}

// meanAndMedian returns the mean and the median of reported risks; NaN of none.
func meanAndMedian(risks []float64) (mean, median float64) {
	if len(risks) == 0 {
		return math.NaN(), math.NaN()
	}
	sorted, sum := slices.Sorted(slices.Values(risks)), 0.0
	for _, r := range risks {
		sum += r
	}
	return sum / float64(len(risks)), (sorted[(len(risks)-1)/2] + sorted[len(risks)/2]) / 2
}

// aggregate makes the next model of the set by the round's rule and its optimiser, stores it and plans the next round.
// A restart in the middle of it loses nothing on disk. Events may come with an error, too.
func (w *modelState) aggregate(run wire.RunID, spool *store.Spool, e round.Aggregate) (round.Aggregated,
	[]observe.Event) {
	folded := round.Aggregated{Round: e.Round}
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
	reported := reportedRisks(spool)
	told := round.SummarizeRisks(reportedRisksOfSet(reported, e.Contributions))
	if e.BaseModelDiverged || w.heldOut == nil && e.Plan.Diverged(told) {
		if back, events, ok := w.returnToEarlierModel(run, &e, told); ok || e.BaseModelDiverged {
			return back, events
		}
	}
	taken, left, err := w.aggregateGuarded(run, spool, e)
	for _, f := range left {
		// else it is a rule of the round, which says nothing of the next one
		if f.Reason != LeftOutAbove || round.IsSpoilingLength(f.Norm, f.UsualNorm) {
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
			leave(a, wire.FateAbove)
		}
		events = append(events, UpdatesExcludedByRule{Round: e.Round, Rule: w.cfg.Round.Aggregation.Rule, Agents: out})
	}
	events = append(events, w.clippedEvents(&e, taken)...)
	version := e.Plan.Version + 1
	folded.NextPlan, err = w.storeAndPlanTraining(run, version, e.Plan.Offset+w.stepsPerRound(), taken.model,
		taken.serverState)
	if err != nil {
		return round.Aggregated{Round: e.Round, Err: err}, nil
	}
	events = append(events, w.recordAggregationInPlan(&folded.NextPlan, &e, taken, told)...)
	risks := reportedRisksOfSet(reported, taken.contributions)
	for k, r := range risks {
		folded.AgentRisks = append(folded.AgentRisks, stop.AgentRisk{Agent: taken.contributions[k].Agent, Risk: r})
	}
	mean, median := meanAndMedian(risks)
	ready := ModelReady{
		Round: e.Round, Version: version, Hash: folded.NextPlan.Base.Hash, Bytes: int(w.baseModelBlob.Ref.Length),
		UpdateSpread: taken.spread, AggregateNorm: taken.aggregateNorm, ModelStepNorm: taken.modelStepNorm,
		HeldOutScore: taken.score, MeanReportedRisk: mean, MedianRisk: median, AggregationDuration: w.now().Sub(began),
	}
	ready.Risk = w.riskMonitor.assess(&ready)
	folded.Measurements = ready.roundMeasurements()
	if w.statisticsRoundFollows(version) {
		folded.NextPlan, folded.Err = w.planStatisticsRefresh(&folded.NextPlan)
	}
	return folded, append(events, ready)
}

// recordAggregationInPlan sets the fields of the next plan with which later folds are compared, and returns the events
// about agents whose updates are long in consecutive folds.
func (w *modelState) recordAggregationInPlan(next *round.Plan, e *round.Aggregate, taken *aggregationAttempt,
	told round.ReportedRisks) (events []observe.Event) {
	b := w.assessUpdateLengths(e)
	next.Recent = round.AppendRecent(e.Plan.Recent, taken.heldOutRisk(), told, taken.lengths)
	next.FirstTold = cmp.Or(e.Plan.FirstTold, told)
	next.Suspects = b.SuspectAgents(taken.contributions, taken.lengths)
	var ended []round.LongUpdateAgent
	next.Large, ended = e.Plan.NextLongUpdateAgents(e.Contributions, &b)
	for _, l := range b.LongUpdateAgents {
		if l.Times < largeFolds {
			continue
		}
		f := RepeatedLargeUpdates{Round: e.Round, Agent: l.Agent, ConsecutiveUpdates: l.Times, SinceVersion: l.Since,
			Norm: l.Lengths[len(l.Lengths)-1], UsualNorm: b.UsualLength}
		for k, x := range taken.contributions {
			if x.Agent == l.Agent && x.Norm > 0 {
				f.CountedNorm = taken.lengths[k] * x.CountedNorm() / x.Norm
			}
		}
		events = append(events, f)
	}
	for _, l := range ended {
		if l.Times >= largeFolds {
			events = append(events, RepeatedLargeUpdates{Round: e.Round, Agent: l.Agent, UsualNorm: b.UsualLength})
		}
	}
	return events
}

// largeFolds is the number of consecutive long updates from which on an agent is reported.
const largeFolds = 3

// returnToEarlierModel rejects the base model of a round, which has diverged according to its participants, and plans
// the next round on the newest earlier model in the archive. The updates of the round are dropped. It returns false if
// the archive has no earlier model with the present standardisation.
func (w *modelState) returnToEarlierModel(run wire.RunID, e *round.Aggregate,
	told round.ReportedRisks) (round.Aggregated, []observe.Event, bool) {
	p, now := &e.Plan, w.compiledTask.Standardization()
	folded := round.Aggregated{Round: e.Round, SpoilingAgents: p.Suspects,
		FateByLeftOutAgent: map[wire.AgentID]wire.UpdateFate{}}
	versions, err := w.stateFolder.Models.Versions()
	if err != nil {
		return round.Aggregated{Round: e.Round, Err: err}, nil, false
	}
	var earlier *runs.StoredModel
	for _, v := range slices.Backward(versions) {
		m, err := w.stateFolder.ReadModel(w.stateFolder.Models, v)
		if err == nil && v < uint64(p.Version) && m.MatchesSchema(w.compiledTask.Schema(wire.KindTraining)) &&
			slices.Equal(m.Standardization.Mean, now.Mean) && slices.Equal(m.Standardization.Scale, now.Scale) {
			earlier = m
			break
		}
	}
	if earlier == nil {
		return round.Aggregated{Round: e.Round, Err: fmt.Errorf("%w: model %d, and no earlier model is archived",
			errDiverged, p.Version)}, nil, false
	}
	model := earlier.EncodeVector(w.compiledTask.Schema(wire.KindTraining))
	packed, err := w.archivedState(w.stateFolder.Models, earlier.Version, wire.BlobDigest(model))
	if err != nil && !store.IsMissingOrDamaged(err) {
		return round.Aggregated{Round: e.Round, Err: err}, nil, false
	}
	state, _ := w.unpackState(packed)
	version := p.Version + 1
	next, err := w.storeAndPlanTraining(run, version, p.Offset+w.stepsPerRound(), model, state)
	if err != nil {
		return round.Aggregated{Round: e.Round, Err: err}, nil, false
	}
	next.Recent, next.FirstTold, next.Large = p.Recent, p.FirstTold, p.Large
	for _, x := range e.Contributions {
		folded.FateByLeftOutAgent[x.Agent] = wire.FateRisk
	}
	events := []observe.Event{
		ModelRejected{Round: e.Round, Version: p.Version, EarlierVersion: wire.ModelVersion(earlier.Version),
			NextVersion:        version,
			MedianReportedRisk: told.Median, Agents: p.Suspects},
		ModelReady{Round: e.Round, Version: version, Hash: next.Base.Hash, Bytes: int(w.baseModelBlob.Ref.Length),
			MeanReportedRisk: math.NaN(), MedianRisk: math.NaN(), UpdateSpread: math.NaN(), AggregateNorm: math.NaN(),
			ModelStepNorm: math.NaN()}}
	if folded.NextPlan = next; w.statisticsRoundFollows(version) {
		folded.NextPlan, folded.Err = w.planStatisticsRefresh(&next)
	}
	return folded, events, true
}

// fates are those of updates that are left out.
var fates = map[LeaveOutReason]wire.UpdateFate{LeftOutNotFinite: wire.FateNotFinite, LeftOutRisk: wire.FateRisk,
	LeftOutNorm: wire.FateNorm, LeftOutAbove: wire.FateAbove}

// aggregateStatistics standardises the task with the agents' moments and plans the first training round.
func (w *modelState) aggregateStatistics(run wire.RunID, spool *store.Spool, e round.Aggregate) (round.Plan,
	[]observe.Event,
	error) {
	ready := StatisticsReady{Columns: len(w.compiledTask.Task.Features) + 1}
	var same constantColumnDetector
	t, far, err := w.compiledTask.WithStandardization(len(e.Contributions), func(take func(*learner.Moments)) error {
		ready.Rows, same = 0, constantColumnDetector{}
		return eachMoments(spool, e.Contributions, func(m *learner.Moments) {
			ready.Rows += m.Rows
			same.add(m)
			take(m)
		})
	}, w.cfg.FeatureClip)
	if err != nil {
		return round.Plan{}, nil, err
	}
	name := func(column int) string {
		if column < len(t.Features) {
			return t.Features[column]
		}
		return t.Target
	}
	for _, f := range far {
		ready.DistantDataAgents = append(ready.DistantDataAgents, DistantDataAgent{e.Contributions[f.Device].Agent,
			name(f.Column),
			f.DistanceInSigmas})
	}
	for _, column := range same.constantIndices() {
		if column < len(t.Features) || t.Model.Risk.IsRegression() && t.Target != "" {
			ready.ConstantColumns = append(ready.ConstantColumns, name(column))
		}
	}
	if e.Plan.Base.Present() {
		next, err := w.planAfterStatistics(run, &e.Plan, t)
		return next, []observe.Event{ready}, err
	}
	model, from, err := w.modelBeforeStatistics() // while an error can still leave all as it was
	if err != nil {
		return round.Plan{}, nil, err
	}
	if err := w.setTask(t); err != nil {
		return round.Plan{}, nil, err
	}
	next, err := w.storeAndPlanTraining(run, 0, 0, wire.AppendVector(nil, w.modelAfterStatistics(model, from)), nil)
	return next, []observe.Event{ready}, err
}

// constantColumnDetector finds the columns that are the same number on all devices.
type constantColumnDetector struct {
	variesByColumn     []bool
	minMeans, maxMeans []float64 // of the devices' means
}

func (c *constantColumnDetector) add(m *learner.Moments) {
	if c.variesByColumn == nil {
		c.variesByColumn, c.minMeans, c.maxMeans = make([]bool, len(m.Mean)), slices.Clone(m.Mean), slices.Clone(m.Mean)
	}
	for j, mean := range m.Mean {
		c.variesByColumn[j] = c.variesByColumn[j] || !m.Constant(j)
		c.minMeans[j], c.maxMeans[j] = min(c.minMeans[j], mean), max(c.maxMeans[j], mean)
	}
}

func (c *constantColumnDetector) constantIndices() (all []int) {
	for j, varies := range c.variesByColumn {
		if !varies && c.minMeans[j] == c.maxMeans[j] {
			all = append(all, j)
		}
	}
	return all
}

// eachMoments reads the moments of the set, one agent's at a time.
func eachMoments(spool *store.Spool, set []round.Contribution, take func(*learner.Moments)) error {
	var buffer []byte
	for _, x := range set {
		payload, err := spool.Payload(string(x.Agent), buffer)
		if err != nil {
			return spoolReadError(x.Agent, err)
		}
		m, err := decodeMoments(payload)
		if err != nil {
			return spoolReadError(x.Agent, err)
		}
		take(m)
		buffer = slices.Grow(payload[:0], len(payload))
	}
	return nil
}

// decodeMoments decodes an update of a statistics round.
func decodeMoments(payload []byte) (*learner.Moments, error) {
	v := make([]float64, len(payload)/8)
	if err := wire.DecodeVector(v, payload); err != nil {
		return nil, err
	}
	return learner.MomentsFromVector(v)
}

// updateSpread is how far the v_k, as they count, are from their weighted mean v̄ = Σ f_k v_k / Σ f_k, as the root of
// the mean square √(Σ f_k‖v_k‖²/Σ f_k − ‖v̄‖²); of updates of one base model this is the consensus distance of the
// agents that sent them. mean is ‖v̄‖²: see addMeanSquares.
func updateSpread(set []round.Contribution, mean float64) float64 {
	var total, squares float64
	for _, x := range set {
		total += x.Factor
		squares += x.Factor * x.CountedNorm() * x.CountedNorm()
	}
	return math.Sqrt(max(0, squares/total-mean))
}

// addSquaredMeanElements adds the squares of elements of v̄ to a sum; d is what the mean makes of these elements.
func addSquaredMeanElements(sum float64, set []round.Contribution, d []float64, scale float64) float64 {
	total, draws := 0.0, 0
	for _, x := range set {
		total += x.Factor
		draws += x.DrawCount
	}
	toMean := float64(draws) / (scale * total)
	for _, x := range d {
		sum += x * toMean * x * toMean
	}
	return sum
}
