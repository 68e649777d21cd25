package round

import (
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// RecentFolds is of how many folds a plan remembers a [RecentAggregation].
const RecentFolds = 20

// usualFolds is how many of them tell how long updates usually are: few, since lengths shrink while a model is learned.
const usualFolds = 5

// Multiples of the usual length.
const (
	// longLengthFactor: a longer update is long. A fold that is rejected is repeated without the long updates. With
	// round.robust it is also the default of aggregation.clip_above.
	longLengthFactor = 3
	// spoilingLengthFactor: the agent of a longer update that was left out sits out. With round.robust it is also the
	// default of aggregation.refuse_above.
	spoilingLengthFactor = 100
)

// outweighingLengthFactor is the smallest multiple of the round's median length at which an update outweighs the
// others.
const outweighingLengthFactor = 5

// An agent is steadily large if its last steadyFolds updates were all long and the longest of them is at most
// steadyRatio times the shortest.
const (
	steadyFolds = 3
	steadyRatio = 2
)

// mostLarge bounds the agents in [Plan.Large].
const mostLarge = 256

// LongUpdateAgent is an agent whose last updates were all more than 3 times as long as usual.
type LongUpdateAgent struct {
	Agent   wire.AgentID
	Times   int               // consecutive long updates
	Lengths []float64         // lengths of the last 3 of them
	Since   wire.ModelVersion // the model before the first of them was folded
}

// hasConsistentLengths reports whether the agent's updates are consistently large, as with unusual data.
func (l *LongUpdateAgent) hasConsistentLengths() bool {
	return len(l.Lengths) == steadyFolds && slices.Max(l.Lengths) <= steadyRatio*slices.Min(l.Lengths)
}

// withLongUpdate returns the agent after one more long update.
func (l *LongUpdateAgent) withLongUpdate(length float64) LongUpdateAgent {
	lengths := append(slices.Clone(l.Lengths), length)
	return LongUpdateAgent{l.Agent, l.Times + 1, lengths[max(0, len(lengths)-steadyFolds):], l.Since}
}

// explodedRiskFactor is how many times the worst recent risk a model may have.
const explodedRiskFactor = 10

// RecentAggregation is what is remembered of a fold to judge the next ones by. It stands in the plan, and so in the
// journal: a fold that is repeated after a crash is judged as it was before.
type RecentAggregation struct {
	Risk   float64       // of its model on held-out data; 0 without any
	Length float64       // the median of its updates' lengths
	Told   ReportedRisks `json:",omitzero"` // of the fold's base model
}

// ReportedRisks summarises the risks of a model that the agents of a round reported; zero = not known.
type ReportedRisks struct{ Median, Mean float64 }

// UpdateLengthAssessment are how long the updates of a set are, and what that makes of them.
type UpdateLengthAssessment struct {
	UsualLength        float64        // 0: nothing can be told
	RefusedIndices     []int          // places in the whole set, in order, of the updates that are too long to be taken
	TakenContributions []Contribution // the others, each with the norm that counts of it at most
	TakenLengths       []float64      // of these
	LongIndices        []int          // places in Set, in order, of those over 3 times as long as usual
	// OutweighingIndices are places in Long of the updates that are longer than n − 1 medians of this set, than 5
	// medians, and than 3 times every median that the plan remembers. The last condition protects honest agents in the
	// quiet rounds near the end of a run. Outweigh is empty without round.robust, in a set of fewer than 5 updates, and
	// where the median is 0.
	OutweighingIndices []int
	// LongUpdateAgents are the agents of the set whose updates are long, as they are after this fold. Only with
	// round.robust a steadily large agent is treated differently: its update is clipped and never left out for its
	// length.
	LongUpdateAgents []LongUpdateAgent
}

// AssessUpdateLengths compares the updates of a set with their usual length ([UsualLength]), for the weight that their
// steps carried. The same set and plan give the same bounds.
func (p *Plan) AssessUpdateLengths(by rule.Config, robust bool, weighting spec.WeightPlacement,
	set []Contribution) UpdateLengthAssessment {
	all := make([]float64, len(set))
	for k, c := range set {
		all[k] = p.NormalizedLength(weighting, c)
	}
	b := UpdateLengthAssessment{UsualLength: UsualLength(all, p.Recent)}
	now := median(all)
	others := max(outweighingLengthFactor*now, float64(len(all)-1)*now, longLengthFactor*largestRecentMedian(p.Recent))
	steady := map[wire.AgentID]bool{}
	for k, c := range set {
		if b.UsualLength > 0 && all[k] > longLengthFactor*b.UsualLength {
			before := p.longUpdateAgentOf(c.Agent)
			l := before.withLongUpdate(all[k])
			steady[c.Agent] = robust && l.hasConsistentLengths() && by.MaxNorm(b.UsualLength, 1) > 0
			b.LongUpdateAgents = append(b.LongUpdateAgents, l)
		}
	}
	b.RefusedIndices = slices.DeleteFunc(by.OverlongUpdates(b.UsualLength, all),
		func(k int) bool { return steady[set[k].Agent] })
	for k, c := range set {
		if slices.Contains(b.RefusedIndices, k) {
			continue
		}
		c.MaxNorm = by.MaxNorm(b.UsualLength, p.carriedStepWeight(weighting, c))
		if b.UsualLength > 0 && all[k] > longLengthFactor*b.UsualLength {
			b.LongIndices = append(b.LongIndices, len(b.TakenContributions))
			if robust && len(all) >= rule.Fewest && now > 0 && all[k] > others && !steady[c.Agent] {
				b.OutweighingIndices = append(b.OutweighingIndices, len(b.TakenContributions))
			}
		}
		b.TakenContributions, b.TakenLengths = append(b.TakenContributions, c), append(b.TakenLengths, all[k])
	}
	return b
}

// UsualLength is how long updates usually are: the median of a set's lengths or, if that is more, of the medians of the
// last 5 folds. Of two middle ones the lower is taken, since a half may lie. So the majority of a round's agents, or
// that of five rounds, would have to lie to make long updates usual; what was usual keeps those of a quiet round from
// being long. Of fewer than 3 updates it is 0: nothing can be told.
func UsualLength(lengths []float64, recent []RecentAggregation) float64 {
	if len(lengths) < 3 {
		return 0
	}
	var before []float64
	for _, r := range recent[max(0, len(recent)-usualFolds):] {
		before = append(before, r.Length)
	}
	return max(median(lengths), median(before))
}

// largestRecentMedian is the largest of the medians of all folds that are remembered.
func largestRecentMedian(recent []RecentAggregation) (l float64) {
	for _, r := range recent {
		l = max(l, r.Length)
	}
	return l
}

// median is the lower one of two; 0 of none.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(x))[(len(x)-1)/2]
}

// longUpdateAgentOf returns the entry of Plan.Large of an agent, or a new entry.
func (p *Plan) longUpdateAgentOf(a wire.AgentID) LongUpdateAgent {
	for _, l := range p.Large {
		if l.Agent == a {
			return l
		}
	}
	return LongUpdateAgent{Agent: a, Since: p.Version}
}

// NextLongUpdateAgents returns the agents whose last update was long, after a fold of the set with these bounds: at
// most 256, the most recent last. ended are those whose update is no longer long.
func (p *Plan) NextLongUpdateAgents(set []Contribution, b *UpdateLengthAssessment) (now, ended []LongUpdateAgent) {
	if b.UsualLength == 0 {
		return p.Large, nil
	}
	sent := map[wire.AgentID]bool{}
	for _, c := range set {
		sent[c.Agent] = true
	}
	for _, l := range p.Large {
		if !sent[l.Agent] {
			now = append(now, l)
		}
	}
	now = append(now, b.LongUpdateAgents...)
	for _, l := range p.Large {
		if !slices.ContainsFunc(now, func(n LongUpdateAgent) bool { return n.Agent == l.Agent }) {
			ended = append(ended, l)
		}
	}
	return now[max(0, len(now)-mostLarge):], ended
}

// IsSpoilingLength reports whether an update is so long that its agent sits out.
func IsSpoilingLength(length, usual float64) bool {
	return usual > 0 && length > spoilingLengthFactor*usual
}

// AppendRecent returns the memory after a fold whose updates had these lengths: of at most RecentFolds folds, the
// newest last. risk is the new model's risk on held-out data, told what agents reported of the base model.
func AppendRecent(recent []RecentAggregation, risk float64, told ReportedRisks, lengths []float64) []RecentAggregation {
	recent = append(slices.Clone(recent), RecentAggregation{risk, median(lengths), told})
	return recent[max(0, len(recent)-RecentFolds):]
}

// SuspectAgents returns the agents that are held responsible if the model of this set turns out to have diverged: those
// with long updates, or the agent of the longest update if none is long.
func (b *UpdateLengthAssessment) SuspectAgents(set []Contribution, lengths []float64) (agents []wire.AgentID) {
	for _, l := range b.LongUpdateAgents {
		if slices.ContainsFunc(set, func(c Contribution) bool { return c.Agent == l.Agent }) {
			agents = append(agents, l.Agent)
		}
	}
	if len(agents) == 0 && len(set) > 0 {
		agents = append(agents, set[slices.Index(lengths, slices.Max(lengths))].Agent)
	}
	return agents
}

// mostTold bounds a reported risk in the mean, in multiples of the median: one agent cannot report a risk that makes
// every later one look small.
const mostTold = 1e9

// SummarizeRisks returns the lower median and the mean of the risks that agents reported; zero if fewer than 3 agents
// reported, since no majority of them can be relied on.
func SummarizeRisks(risks []float64) (t ReportedRisks) {
	if len(risks) < 3 {
		return t
	}
	t.Median = median(risks)
	for _, r := range risks {
		if t.Median > 0 {
			r = min(r, mostTold*t.Median)
		}
		t.Mean += r / float64(len(risks))
	}
	return t
}

// Diverged reports whether the model of the plan has diverged, by the risks that agents reported of it: both their
// median and their mean are over 10 times the worst ones of the last folds and of the run's first model. The median
// alone rises where the model moves towards a few unusual devices, the mean alone where one agent lies. A model that no
// fold of this run has made is never judged.
func (p *Plan) Diverged(told ReportedRisks) bool {
	worst := p.FirstTold
	for _, r := range p.Recent {
		worst = ReportedRisks{max(worst.Median, r.Told.Median), max(worst.Mean, r.Told.Mean)}
	}
	return len(p.Suspects) > 0 && !p.Endless && worst.Mean > 0 && told.Median > explodedRiskFactor*worst.Median &&
		told.Mean > explodedRiskFactor*worst.Mean
}

// RiskExploded reports whether a model of that risk on held-out data is too bad to be taken: no number, or over 10
// times the worst of the recent risks and above floor, the risk of a model that knows nothing. base is the risk of the
// model before, for a run that remembers none.
func RiskExploded(risk, base, floor float64, recent []RecentAggregation) bool {
	worst := 0.0
	for _, r := range recent {
		worst = max(worst, r.Risk)
	}
	if worst == 0 {
		worst = base
	}
	return !(risk <= math.MaxFloat64) || risk > explodedRiskFactor*worst && risk > floor
}

// NormalizedLength returns ‖v_k‖ for the weight that the agent's step carried, so that agents of different weights
// compare.
func (p *Plan) NormalizedLength(weighting spec.WeightPlacement, c Contribution) float64 {
	return min(c.Norm/p.carriedStepWeight(weighting, c), math.MaxFloat64)
}

// carriedStepWeight is the weight that the agent's step carried; 1 for none.
func (p *Plan) carriedStepWeight(weighting spec.WeightPlacement, c Contribution) float64 {
	if w := p.StepWeight(weighting, c.Weight); w > 0 {
		return w
	}
	return 1
}

// ContributionsWithout returns the set without the updates at these places.
func ContributionsWithout(set []Contribution, places []int) []Contribution {
	var rest []Contribution
	for k, c := range set {
		if !slices.Contains(places, k) {
			rest = append(rest, c)
		}
	}
	return rest
}
