package round

import (
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// MaxPastAggregations is the maximum number of [PastAggregationSummary] entries in a plan.
const MaxPastAggregations = 20

// usualNormAggregations is the number of recent aggregations whose median norms define the usual norm of an update. The
// number is small, since norms shrink during training.
const usualNormAggregations = 5

// Limits of an update's norm, as multiples of the usual norm.
const (
	// largeNormFactor is the multiple of the usual norm above which an update is large. If an aggregated model is
	// rejected, the host repeats the aggregation without the large updates.
	largeNormFactor = 3
	// spoilingNormFactor is the multiple of the usual norm above which an update spoils the model. If such an update
	// was left out of a rejected model, the update's agent is excluded from the next draws.
	spoilingNormFactor = 100
)

// outweighingNormFactor is the smallest multiple of the round's median norm at which a single update may outweigh all
// other updates.
const outweighingNormFactor = 5

// An agent's updates are consistently large if its last consistentNormCount updates were all large and of similar norm:
// the largest norm is at most consistentNormRatio times the smallest.
const (
	consistentNormCount = 3
	consistentNormRatio = 2
)

// maxLargeNormAgents is the maximum number of agents in [Plan.LargeNormAgents].
const maxLargeNormAgents = 256

// LargeNormAgent is an agent whose most recent consecutive updates all had more than 3 times the usual norm.
type LargeNormAgent struct {
	Agent                 wire.AgentID
	ConsecutiveLargeNorms int       `json:"Times"`   // number of consecutive large updates of the agent
	RecentNorms           []float64 `json:"Lengths"` // norms of the agent's last 3 large updates
	// version of the model to which the first of these consecutive large updates was added
	SinceModelVersion wire.ModelVersion `json:"Since"`
}

// hasConsistentNorms reports whether the agent's updates are consistently large. Unusual local data cause such updates,
// so the agent need not be malicious.
func (l *LargeNormAgent) hasConsistentNorms() bool {
	return len(l.RecentNorms) == consistentNormCount &&
		slices.Max(l.RecentNorms) <= consistentNormRatio*slices.Min(l.RecentNorms)
}

// withLargeNorm returns the agent's entry with one more large update of the given norm.
func (l *LargeNormAgent) withLargeNorm(length float64) LargeNormAgent {
	lengths := append(slices.Clone(l.RecentNorms), length)
	return LargeNormAgent{l.Agent, l.ConsecutiveLargeNorms + 1, lengths[max(0, len(lengths)-consistentNormCount):],
		l.SinceModelVersion}
}

// explodedRiskFactor is the multiple of the worst recent risk (mean loss) above which a model has diverged.
const explodedRiskFactor = 10

// PastAggregationSummary summarises a past aggregation, for comparison with later aggregations. The journal contains
// it, so that an aggregation that is repeated after a crash is judged in the same way.
type PastAggregationSummary struct {
	// risk of the new model on held-out data; 0 if the coordinator has no such data
	HeldOutRisk float64 `json:"Risk"`
	MedianNorm  float64 `json:"Length"` // median norm of the updates in the aggregation
	// summary of the risks of the base model that agents reported
	ReportedRisks ReportedRiskSummary `json:"Told,omitzero"`
}

// ReportedRiskSummary contains the median and the mean of the risks that the agents of a round reported for a model. A
// value of 0 means unknown.
type ReportedRiskSummary struct{ Median, Mean float64 }

// UpdateNormAssessment describes the norms of a round's updates, and which updates must be left out or clipped.
type UpdateNormAssessment struct {
	UsualNorm float64 // usual norm of updates (see the function UsualNorm); 0 means unknown
	// RefusedIndices are the sorted indices of the updates that are too large to be aggregated.
	RefusedIndices    []int
	KeptContributions []Contribution // updates that are not refused, each with its norm bound MaxNorm
	// norm ‖v_k‖ of each kept update v_k, divided by the weight of the agent's step (NormPerStepWeight)
	KeptNormsPerStepWeight []float64
	// indices in KeptContributions of the updates with more than 3 times the usual norm
	LargeNormIndices []int
	// OutweighingIndices are the indices in KeptContributions of updates that outweigh all other updates together. Of n
	// updates, such an update has a norm above n − 1 times the median norm, above 5 times the median norm, and above 3
	// times every recent median norm. The last condition protects honest agents near the end of a run. The list is
	// empty without round.robust and with fewer than 5 updates.
	OutweighingIndices []int
	// LargeNormAgents are the agents with large updates in this aggregation. With round.robust, consistently large
	// updates are clipped; they are not left out.
	LargeNormAgents []LargeNormAgent
}

// AssessUpdateNorms compares the norm of each update, divided by the weight of the agent's step, with the usual norm
// ([UsualNorm]). The result depends only on the updates and the plan, so it can be reproduced after a crash.
func (p *Plan) AssessUpdateNorms(by rule.Config, robust bool, weighting spec.WeightPlacement,
	set []Contribution) UpdateNormAssessment {
	all := make([]float64, len(set))
	for k, c := range set {
		all[k] = p.NormPerStepWeight(weighting, c)
	}
	b := UpdateNormAssessment{UsualNorm: UsualNorm(all, p.RecentAggregations)}
	now := lowerMedian(all)
	others := max(outweighingNormFactor*now, float64(len(all)-1)*now,
		largeNormFactor*largestRecentMedianNorm(p.RecentAggregations))
	steady := map[wire.AgentID]bool{}
	for k, c := range set {
		if b.UsualNorm > 0 && all[k] > largeNormFactor*b.UsualNorm {
			before := p.findLargeNormAgent(c.Agent)
			l := before.withLargeNorm(all[k])
			steady[c.Agent] = robust && l.hasConsistentNorms() && by.MaxCountedNorm(b.UsualNorm, 1) > 0
			b.LargeNormAgents = append(b.LargeNormAgents, l)
		}
	}
	b.RefusedIndices = slices.DeleteFunc(by.ExcessiveNormIndices(b.UsualNorm, all),
		func(k int) bool { return steady[set[k].Agent] })
	for k, c := range set {
		if slices.Contains(b.RefusedIndices, k) {
			continue
		}
		c.MaxNorm = by.MaxCountedNorm(b.UsualNorm, p.effectiveStepWeight(weighting, c))
		if b.UsualNorm > 0 && all[k] > largeNormFactor*b.UsualNorm {
			b.LargeNormIndices = append(b.LargeNormIndices, len(b.KeptContributions))
			if robust && len(all) >= rule.MinUpdatesForNormBounds && now > 0 && all[k] > others && !steady[c.Agent] {
				b.OutweighingIndices = append(b.OutweighingIndices, len(b.KeptContributions))
			}
		}
		b.KeptContributions, b.KeptNormsPerStepWeight = append(b.KeptContributions, c),
			append(b.KeptNormsPerStepWeight, all[k])
	}
	return b
}

// UsualNorm returns the usual norm of updates: the larger of the median of the norms in lengths and the median of the
// last 5 aggregations' median norms. Lower medians are used, since up to half of the values may be false. The past
// aggregations keep updates of normal size from appearing large in a round with small updates. UsualNorm returns 0 for
// fewer than 3 updates.
func UsualNorm(lengths []float64, recent []PastAggregationSummary) float64 {
	if len(lengths) < 3 {
		return 0
	}
	var before []float64
	for _, r := range recent[max(0, len(recent)-usualNormAggregations):] {
		before = append(before, r.MedianNorm)
	}
	return max(lowerMedian(lengths), lowerMedian(before))
}

func largestRecentMedianNorm(recent []PastAggregationSummary) (l float64) {
	for _, r := range recent {
		l = max(l, r.MedianNorm)
	}
	return l
}

// lowerMedian returns the median of x. It returns the lower middle value for an even length, and 0 if x is empty.
func lowerMedian(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(x))[(len(x)-1)/2]
}

// findLargeNormAgent returns an agent's entry in Plan.LargeNormAgents, or a new entry.
func (p *Plan) findLargeNormAgent(a wire.AgentID) LargeNormAgent {
	for _, l := range p.LargeNormAgents {
		if l.Agent == a {
			return l
		}
	}
	return LargeNormAgent{Agent: a, SinceModelVersion: p.BaseModelVersion}
}

// NextLargeNormAgents returns two lists after the given aggregation. The list now contains the agents whose last update
// was large: at most 256 agents, the most recent last. The list ended contains the agents whose last update is no
// longer large.
func (p *Plan) NextLargeNormAgents(set []Contribution, b *UpdateNormAssessment) (now, ended []LargeNormAgent) {
	if b.UsualNorm == 0 {
		return p.LargeNormAgents, nil
	}
	sent := map[wire.AgentID]bool{}
	for _, c := range set {
		sent[c.Agent] = true
	}
	for _, l := range p.LargeNormAgents {
		if !sent[l.Agent] {
			now = append(now, l)
		}
	}
	now = append(now, b.LargeNormAgents...)
	for _, l := range p.LargeNormAgents {
		if !slices.ContainsFunc(now, func(n LargeNormAgent) bool { return n.Agent == l.Agent }) {
			ended = append(ended, l)
		}
	}
	return now[max(0, len(now)-maxLargeNormAgents):], ended
}

// IsSpoilingNorm reports whether a norm is so far above the usual norm that the update's agent is excluded from the
// next draws.
func IsSpoilingNorm(length, usual float64) bool {
	return usual > 0 && length > spoilingNormFactor*usual
}

// AppendPastAggregation appends the summary of an aggregation to recent and drops the oldest summaries beyond
// MaxPastAggregations. The parameter risk is the new model's risk on held-out data, told summarises the risks that
// agents reported for the base model, and lengths contains the norms of the updates.
func AppendPastAggregation(recent []PastAggregationSummary, risk float64, told ReportedRiskSummary,
	lengths []float64) []PastAggregationSummary {
	recent = append(slices.Clone(recent), PastAggregationSummary{risk, lowerMedian(lengths), told})
	return recent[max(0, len(recent)-MaxPastAggregations):]
}

// SuspectAgents returns the agents that are blamed if the model aggregated from set turns out to have diverged: the
// agents with large updates, or the agent of the largest update if none is large.
func (b *UpdateNormAssessment) SuspectAgents(set []Contribution, lengths []float64) (agents []wire.AgentID) {
	for _, l := range b.LargeNormAgents {
		if slices.ContainsFunc(set, func(c Contribution) bool { return c.Agent == l.Agent }) {
			agents = append(agents, l.Agent)
		}
	}
	if len(agents) == 0 && len(set) > 0 {
		agents = append(agents, set[slices.Index(lengths, slices.Max(lengths))].Agent)
	}
	return agents
}

// maxReportedRiskFactor limits reported risks to a multiple of their median before they are averaged. Without the
// limit, one agent could report a risk so large that every later risk looks small.
const maxReportedRiskFactor = 1e9

// SummarizeReportedRisks returns the lower median and the mean of the risks that agents reported. It returns zero for
// fewer than 3 agents, since a single false report could then decide the median.
func SummarizeReportedRisks(risks []float64) (t ReportedRiskSummary) {
	if len(risks) < 3 {
		return t
	}
	t.Median = lowerMedian(risks)
	for _, r := range risks {
		if t.Median > 0 {
			r = min(r, maxReportedRiskFactor*t.Median)
		}
		t.Mean += r / float64(len(risks))
	}
	return t
}

// BaseModelDiverged reports whether the plan's base model was aggregated in this run and has diverged: both the median
// and the mean of the reported risks exceed 10 times their worst recent values. It requires both, because unusual
// devices can raise the median, and one false report can raise the mean.
func (p *Plan) BaseModelDiverged(told ReportedRiskSummary) bool {
	worst := p.FirstReportedRisks
	for _, r := range p.RecentAggregations {
		worst = ReportedRiskSummary{max(worst.Median, r.ReportedRisks.Median), max(worst.Mean, r.ReportedRisks.Mean)}
	}
	return len(p.SuspectAgents) > 0 && !p.HasEndlessBlocks && worst.Mean > 0 &&
		told.Median > explodedRiskFactor*worst.Median &&
		told.Mean > explodedRiskFactor*worst.Mean
}

// RiskExploded reports whether a model's risk on held-out data is unacceptable: either not finite, or both above floor
// (the risk of an uninformed model) and above 10 times the worst recent risk. If there are no recent risks, base
// replaces the worst recent risk; base is the risk of the previous model.
func RiskExploded(risk, base, floor float64, recent []PastAggregationSummary) bool {
	worst := 0.0
	for _, r := range recent {
		worst = max(worst, r.HeldOutRisk)
	}
	if worst == 0 {
		worst = base
	}
	return !(risk <= math.MaxFloat64) || risk > explodedRiskFactor*worst && risk > floor
}

// NormPerStepWeight returns the norm ‖v_k‖ of an update v_k, divided by the weight of the agent's step, so that the
// norms of agents with different weights can be compared.
func (p *Plan) NormPerStepWeight(weighting spec.WeightPlacement, c Contribution) float64 {
	return min(c.Norm/p.effectiveStepWeight(weighting, c), math.MaxFloat64)
}

// effectiveStepWeight returns the weight of the agent's step, or 1 if the weight is 0, to avoid a division by zero.
func (p *Plan) effectiveStepWeight(weighting spec.WeightPlacement, c Contribution) float64 {
	if w := p.StepWeight(weighting, c.Weight); w > 0 {
		return w
	}
	return 1
}

// ContributionsWithoutIndices returns the contributions in set without the contributions at the given indices.
func ContributionsWithoutIndices(set []Contribution, places []int) []Contribution {
	var rest []Contribution
	for k, c := range set {
		if !slices.Contains(places, k) {
			rest = append(rest, c)
		}
	}
	return rest
}
