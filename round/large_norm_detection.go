package round

import (
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// MaxPastAggregations is of how many folds a plan remembers a [PastAggregationSummary].
const MaxPastAggregations = 20

// usualNormAggregations is how many of them tell how long updates usually are: few, since lengths shrink while a model
// is learned.
const usualNormAggregations = 5

// Multiples of the usual length.
const (
	// largeNormFactor: a longer update is long. A fold that is rejected is repeated without the long updates. With
	// round.robust it is also the default of aggregation.clip_above.
	largeNormFactor = 3
	// spoilingNormFactor: the agent of a longer update that was left out sits out. With round.robust it is also the
	// default of aggregation.refuse_above.
	spoilingNormFactor = 100
)

// outweighingNormFactor is the smallest multiple of the round's median length at which an update outweighs the
// others.
const outweighingNormFactor = 5

// An agent is steadily large if its last consistentNormCount updates were all long and the longest of them is at most
// consistentNormRatio times the shortest.
const (
	consistentNormCount = 3
	consistentNormRatio = 2
)

// maxLargeNormAgents bounds the agents in [Plan.LargeNormAgents].
const maxLargeNormAgents = 256

// LargeNormAgent is an agent whose last updates were all more than 3 times as long as usual.
type LargeNormAgent struct {
	Agent                 wire.AgentID
	ConsecutiveLargeNorms int               `json:"Times"`   // consecutive long updates
	RecentNorms           []float64         `json:"Lengths"` // lengths of the last 3 of them
	SinceModelVersion     wire.ModelVersion `json:"Since"`   // the model before the first of them was folded
}

// hasConsistentNorms reports whether the agent's updates are consistently large, as with unusual data.
func (l *LargeNormAgent) hasConsistentNorms() bool {
	return len(l.RecentNorms) == consistentNormCount &&
		slices.Max(l.RecentNorms) <= consistentNormRatio*slices.Min(l.RecentNorms)
}

// withLargeNorm returns the agent after one more long update.
func (l *LargeNormAgent) withLargeNorm(length float64) LargeNormAgent {
	lengths := append(slices.Clone(l.RecentNorms), length)
	return LargeNormAgent{l.Agent, l.ConsecutiveLargeNorms + 1, lengths[max(0, len(lengths)-consistentNormCount):],
		l.SinceModelVersion}
}

// explodedRiskFactor is how many times the worst recent risk a model may have.
const explodedRiskFactor = 10

// PastAggregationSummary is what is remembered of a fold to judge the next ones by. It stands in the plan, and so in
// the journal: a fold that is repeated after a crash is judged as it was before.
type PastAggregationSummary struct {
	HeldOutRisk   float64             `json:"Risk"`          // of its model on held-out data; 0 without any
	MedianNorm    float64             `json:"Length"`        // the median of its updates' lengths
	ReportedRisks ReportedRiskSummary `json:"Told,omitzero"` // of the fold's base model
}

// ReportedRiskSummary summarises the risks of a model that the agents of a round reported; zero = not known.
type ReportedRiskSummary struct{ Median, Mean float64 }

// UpdateNormAssessment are how long the updates of a set are, and what that makes of them.
type UpdateNormAssessment struct {
	UsualNorm float64 // 0: nothing can be told
	// places in the whole set, in order, of the updates that are too long to be taken
	RefusedIndices         []int
	KeptContributions      []Contribution // the others, each with the norm that counts of it at most
	KeptNormsPerStepWeight []float64      // ‖v_k‖ per weight of the agent's step (NormPerStepWeight)
	LargeNormIndices       []int          // indices in KeptContributions of updates over 3 times as long as usual
	// OutweighingIndices: indices in KeptContributions of the updates that are longer than n − 1 medians of this set,
	// than 5 medians, and than 3 times every median that the plan remembers. The last condition protects honest agents
	// in the quiet rounds near the end of a run. OutweighingIndices is empty without round.robust, in a set of fewer
	// than 5 updates, and where the median is 0.
	OutweighingIndices []int
	// LargeNormAgents are the agents of the set whose updates are long, as they are after this fold. Only with
	// round.robust a steadily large agent is treated differently: its update is clipped and never left out for its
	// length.
	LargeNormAgents []LargeNormAgent
}

// AssessUpdateNorms compares the updates of a set with their usual length ([UsualNorm]), for the weight that their
// steps carried. The same set and plan give the same bounds.
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

// UsualNorm is how long updates usually are: the median of a set's lengths or, if that is more, of the medians of the
// last 5 folds. Of two middle ones the lower is taken, since a half may lie. So the majority of a round's agents, or
// that of five rounds, would have to lie to make long updates usual; what was usual keeps those of a quiet round from
// being long. Of fewer than 3 updates it is 0: nothing can be told.
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

// largestRecentMedianNorm is the largest of the medians of all folds that are remembered.
func largestRecentMedianNorm(recent []PastAggregationSummary) (l float64) {
	for _, r := range recent {
		l = max(l, r.MedianNorm)
	}
	return l
}

// lowerMedian is the lower one of two; 0 of none.
func lowerMedian(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(x))[(len(x)-1)/2]
}

// findLargeNormAgent returns the entry of Plan.LargeNormAgents of an agent, or a new entry.
func (p *Plan) findLargeNormAgent(a wire.AgentID) LargeNormAgent {
	for _, l := range p.LargeNormAgents {
		if l.Agent == a {
			return l
		}
	}
	return LargeNormAgent{Agent: a, SinceModelVersion: p.BaseModelVersion}
}

// NextLargeNormAgents returns the agents whose last update was long, after a fold of the set with these bounds: at
// most 256, the most recent last. ended are those whose update is no longer long.
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

// IsSpoilingNorm reports whether an update is so long that its agent sits out.
func IsSpoilingNorm(length, usual float64) bool {
	return usual > 0 && length > spoilingNormFactor*usual
}

// AppendPastAggregation returns the memory after a fold whose updates had these lengths: of at most MaxPastAggregations
// folds, the newest last. risk is the new model's risk on held-out data, told what agents reported of the base model.
func AppendPastAggregation(recent []PastAggregationSummary, risk float64, told ReportedRiskSummary,
	lengths []float64) []PastAggregationSummary {
	recent = append(slices.Clone(recent), PastAggregationSummary{risk, lowerMedian(lengths), told})
	return recent[max(0, len(recent)-MaxPastAggregations):]
}

// SuspectAgents returns the agents that are held responsible if the model of this set turns out to have diverged: those
// with long updates, or the agent of the longest update if none is long.
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

// maxReportedRiskFactor bounds a reported risk in the mean, in multiples of the median: one agent cannot report a risk
// that makes every later one look small.
const maxReportedRiskFactor = 1e9

// SummarizeReportedRisks returns the lower median and the mean of the risks that agents reported; zero if fewer than 3
// agents reported, since no majority of them can be relied on.
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

// BaseModelDiverged reports whether the model of the plan has diverged, by the risks that agents reported of it:
// both their median and their mean are over 10 times the worst ones of the last folds and of the run's first
// model. The median alone rises where the model moves towards a few unusual devices, the mean alone where one agent
// lies. A model that no fold of this run has made is never judged.
func (p *Plan) BaseModelDiverged(told ReportedRiskSummary) bool {
	worst := p.FirstReportedRisks
	for _, r := range p.RecentAggregations {
		worst = ReportedRiskSummary{max(worst.Median, r.ReportedRisks.Median), max(worst.Mean, r.ReportedRisks.Mean)}
	}
	return len(p.SuspectAgents) > 0 && !p.HasEndlessBlocks && worst.Mean > 0 &&
		told.Median > explodedRiskFactor*worst.Median &&
		told.Mean > explodedRiskFactor*worst.Mean
}

// RiskExploded reports whether a model of that risk on held-out data is too bad to be taken: no number, or over 10
// times the worst of the recent risks and above floor, the risk of a model that knows nothing. base is the risk of the
// model before, for a run that remembers none.
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

// NormPerStepWeight returns ‖v_k‖ for the weight that the agent's step carried, so that agents of different weights
// compare.
func (p *Plan) NormPerStepWeight(weighting spec.WeightPlacement, c Contribution) float64 {
	return min(c.Norm/p.effectiveStepWeight(weighting, c), math.MaxFloat64)
}

// effectiveStepWeight is the weight that the agent's step carried; 1 for none.
func (p *Plan) effectiveStepWeight(weighting spec.WeightPlacement, c Contribution) float64 {
	if w := p.StepWeight(weighting, c.Weight); w > 0 {
		return w
	}
	return 1
}

// ContributionsWithoutIndices returns the set without the updates at these places.
func ContributionsWithoutIndices(set []Contribution, places []int) []Contribution {
	var rest []Contribution
	for k, c := range set {
		if !slices.Contains(places, k) {
			rest = append(rest, c)
		}
	}
	return rest
}
