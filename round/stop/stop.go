package stop

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// Reason tells why a run is over. It is a metric's label.
type Reason string

// The reasons.
const (
	MaxAggregationsReached Reason = "rounds"   // it has made all its aggregations
	TargetRiskReached      Reason = "risk"     // the target is reached
	TargetR2Reached        Reason = "r2"       // the same
	TargetAccuracyReached  Reason = "accuracy" // the same
	PatienceExhausted      Reason = "patience" // the risk has not improved for long
	TimeLimitReached       Reason = "time"     // its time is used up
	ByteLimitReached       Reason = "bytes"    // its bytes are
	StoppedByOperator      Reason = "asked"    // a person has stopped it
)

// AllReasons returns all reasons, for closed label sets.
func AllReasons() []Reason {
	return []Reason{MaxAggregationsReached, TargetRiskReached, TargetR2Reached, TargetAccuracyReached,
		PatienceExhausted, TimeLimitReached, ByteLimitReached, StoppedByOperator}
}

// RiskWindowAggregations is of how many aggregations the risk is the mean where there are no held-out data: each round
// has other participants, and so another risk.
const RiskWindowAggregations = 5

// Measurements are what was measured of a new model; nil where it was not.
type Measurements struct {
	HeldOutRisk, R2, Accuracy *float64 // on held-out data
	// MedianAgentRisk is the median of the risks that the participants have told, of the model before. A device that
	// lies moves a mean as far as it likes.
	MedianAgentRisk *float64
	// AgentRisks are the participants with the risks that they reported of the model before.
	AgentRisks []AgentRisk
}

// AgentRisk is the risk that an agent reported.
type AgentRisk struct {
	Agent wire.AgentID
	Risk  float64
}

// maxComparedAgents is the largest number of agents whose risks are compared one by one. In a larger federation the
// medians of all participants are compared: a few agents change them little.
const maxComparedAgents = 256

// AgentRiskHistory is a member of the federation.
type AgentRiskHistory struct {
	Agent wire.AgentID
	// ReportedRisks are its reports in the [RiskWindowAggregations] aggregations up to its last report, since the
	// membership last changed.
	ReportedRisks []VersionRisk `json:"Told,omitempty"`
	// BaselineRisk is its mean risk when the best risk was found, or else its first mean risk after that; nil before.
	BaselineRisk *float64 `json:"Best,omitempty"`
}

// VersionRisk is a risk reported for the aggregation that made a version.
type VersionRisk struct {
	Version wire.ModelVersion
	Risk    float64
}

// meanReportedRisk returns the mean of the agent's reports.
func (k *AgentRiskHistory) meanReportedRisk() float64 {
	sum := 0.0
	for _, t := range k.ReportedRisks {
		sum += t.Risk / float64(len(k.ReportedRisks)) // divided before the sum, which may overflow otherwise
	}
	return sum
}

// State is how far a run has come. It is in the journal. Slices are replaced and never changed.
type State struct {
	TimeLimitStartedAt time.Time `json:"Since,omitzero"`  // the time counts from it
	TransferredBytes   uint64    `json:"Bytes,omitempty"` // carried since then
	R2, Accuracy       float64   `json:",omitzero"`       // of the newest model; 0 = not known

	UsesHeldOutRisk         bool               `json:"HeldOut,omitempty"` // the risks are those on held-out data
	RecentMedianRisks       []float64          `json:"Told,omitempty"`    // else the last medians, the newest last
	JudgedRiskCount         int                `json:"Judged,omitempty"`  // risks so far
	LatestRisk              float64            `json:"Risk,omitzero"`     // the last one
	BestRisk                float64            `json:"Best,omitzero"`     // the lowest that counted as an improvement
	BestVersion             wire.ModelVersion  `json:"BestAt,omitempty"`  // the model whose aggregation had it
	AggregationsSinceBest   int                `json:"Without,omitempty"` // risks since then
	AggregationsWithReports int                `json:"Noted,omitempty"`   // aggregations with reports of known agents so far
	AgentRiskHistories      []AgentRiskHistory `json:"Agents,omitempty"`  // members, in id order; none with held-out data or in a large federation
	ExceedsAgentLimit       bool               `json:"Large,omitempty"`   // the federation has more agents than are compared one by one
	// NextRisksIncomparable says that the risks to come are in other columns, and not to be compared with those before.
	NextRisksIncomparable bool `json:"Rescaled,omitempty"`
}

// Resume takes up the state in a process with this rule. The first rule of a
// run counts from now, and a changed one with what was counted before.
func (s *State) Resume(c *Config, now time.Time) {
	if !c.IsEnabled() {
		*s = State{}
	} else if s.TimeLimitStartedAt.IsZero() {
		s.TimeLimitStartedAt = now.UTC().Truncate(time.Millisecond)
	}
}

// RecordMeasurements takes the figures of a new model. Without held-out data the risk of an agent is the mean of its
// reports in the last [RiskWindowAggregations] aggregations, and the risk of the model is the median over the agents
// that reported in these. All counts start again when an agent joins; the risk is known from the
// [RiskWindowAggregations]-th aggregation after that.
func (s *State) RecordMeasurements(c *Config, version wire.ModelVersion, f Measurements) {
	s.R2, s.Accuracy = valueOrZero(f.R2), valueOrZero(f.Accuracy)
	if held := f.HeldOutRisk != nil; s.NextRisksIncomparable || held != s.UsesHeldOutRisk {
		s.ForgetRisks()
		if s.NextRisksIncomparable, s.UsesHeldOutRisk = false, held; held {
			s.AgentRiskHistories = nil
		}
	}
	switch {
	case s.UsesHeldOutRisk:
		s.compareWithBest(c, version, *f.HeldOutRisk)
	case s.comparesRisksPerAgent(f.AgentRisks):
		s.judgeAgentRisks(c, version, f.AgentRisks)
	case f.MedianAgentRisk != nil:
		s.RecentMedianRisks = append(slices.Clone(s.RecentMedianRisks[max(0,
			len(s.RecentMedianRisks)-(RiskWindowAggregations-1)):]), *f.MedianAgentRisk)
		if len(s.RecentMedianRisks) == RiskWindowAggregations {
			s.compareWithBest(c, version, mean(s.RecentMedianRisks))
		}
	}
}

// compareWithBest compares a risk with the best one.
func (s *State) compareWithBest(c *Config, version wire.ModelVersion, risk float64) {
	s.LatestRisk = risk
	s.AggregationsSinceBest++
	if s.JudgedRiskCount == 0 || risk < s.BestRisk-c.MinImprovementShare*math.Abs(s.BestRisk) {
		s.BestRisk, s.BestVersion, s.AggregationsSinceBest = risk, version, 0
	}
	s.JudgedRiskCount++
}

// comparesRisksPerAgent reports whether the agents' risks are compared one by one. It adds agents that are not known
// yet.
func (s *State) comparesRisksPerAgent(agents []AgentRisk) bool {
	for _, a := range agents {
		s.AddAgent(a.Agent)
	}
	return len(agents) > 0 && !s.ExceedsAgentLimit
}

// AddAgent adds an agent that has not been a member before. All counts start again, since the risks so far are the
// risks of another group of agents. With held-out data agents are not counted.
func (s *State) AddAgent(a wire.AgentID) {
	i, known := s.findAgent(a)
	if known || s.UsesHeldOutRisk || s.ExceedsAgentLimit {
		return
	}
	s.ForgetRisks()
	if s.ExceedsAgentLimit = len(s.AgentRiskHistories) == maxComparedAgents; s.ExceedsAgentLimit {
		s.AgentRiskHistories = nil
		return
	}
	s.AgentRiskHistories = slices.Insert(slices.Clone(s.AgentRiskHistories), i, AgentRiskHistory{Agent: a})
}

func (s *State) findAgent(a wire.AgentID) (int, bool) {
	i := sort.Search(len(s.AgentRiskHistories), func(i int) bool { return s.AgentRiskHistories[i].Agent >= a })
	return i, i < len(s.AgentRiskHistories) && s.AgentRiskHistories[i].Agent == a
}

// judgeAgentRisks judges the risks of the agents that reported in the last [RiskWindowAggregations] aggregations. Each
// agent is compared with itself: with its risk when the best risk was found, or with its first risk after that. So it
// does not matter which agents are drawn.
func (s *State) judgeAgentRisks(c *Config, version wire.ModelVersion, agents []AgentRisk) {
	all := slices.Clone(s.AgentRiskHistories)
	for _, a := range agents {
		i, _ := s.findAgent(a.Agent)
		recent := slices.DeleteFunc(slices.Clone(all[i].ReportedRisks),
			func(t VersionRisk) bool { return t.Version+RiskWindowAggregations <= version })
		all[i].ReportedRisks = append(recent, VersionRisk{version, a.Risk})
	}
	s.AgentRiskHistories = all
	if s.AggregationsWithReports++; s.AggregationsWithReports < RiskWindowAggregations {
		return
	}
	var now, best []float64
	for i := range all {
		k := &all[i]
		if n := len(k.ReportedRisks); n == 0 || k.ReportedRisks[n-1].Version+RiskWindowAggregations <= version {
			continue
		}
		risk := k.meanReportedRisk()
		if k.BaselineRisk == nil {
			k.BaselineRisk = &risk
		}
		now, best = append(now, risk), append(best, *k.BaselineRisk)
	}
	before := lowerMedian(best)
	better := s.JudgedRiskCount == 0 || lowerMedian(now) < before-c.MinImprovementShare*math.Abs(before)
	s.LatestRisk = lowerMedian(now)
	s.JudgedRiskCount++
	s.AggregationsSinceBest++
	if !better {
		return
	}
	s.BestRisk, s.BestVersion, s.AggregationsSinceBest = s.LatestRisk, version, 0
	for i := range all {
		if len(all[i].ReportedRisks) > 0 {
			risk := all[i].meanReportedRisk()
			all[i].BaselineRisk = &risk
		}
	}
}

// RemoveAgent removes an agent that is no longer a member, or whose data no longer fit. The risks so far are dropped,
// since they are those of another group of agents.
func (s *State) RemoveAgent(a wire.AgentID) {
	i, known := s.findAgent(a)
	if !known {
		return
	}
	s.ForgetRisks()
	s.AgentRiskHistories = slices.Delete(slices.Clone(s.AgentRiskHistories), i, i+1)
}

// ForgetRisks drops the risks so far, which are not to be compared with those to come.
func (s *State) ForgetRisks() {
	s.RecentMedianRisks, s.JudgedRiskCount, s.LatestRisk, s.BestRisk, s.BestVersion, s.AggregationsSinceBest,
		s.AggregationsWithReports = nil, 0, 0, 0, 0, 0, 0
	s.AgentRiskHistories = slices.Clone(s.AgentRiskHistories)
	for i := range s.AgentRiskHistories {
		s.AgentRiskHistories[i].ReportedRisks, s.AgentRiskHistories[i].BaselineRisk = nil, nil
	}
}

// StopReason returns why the run is over; empty if it is not.
func (s *State) StopReason(c *Config, now time.Time) Reason {
	switch end := s.TimeLimitEndsAt(c); {
	case c.TargetRisk > 0 && s.JudgedRiskCount > 0 && s.LatestRisk <= c.TargetRisk:
		return TargetRiskReached
	case c.TargetR2 > 0 && s.R2 >= c.TargetR2:
		return TargetR2Reached
	case c.TargetAccuracy > 0 && s.Accuracy >= c.TargetAccuracy:
		return TargetAccuracyReached
	case c.Patience > 0 && s.AggregationsSinceBest >= c.Patience:
		return PatienceExhausted
	case c.ByteLimit > 0 && s.TransferredBytes >= uint64(c.ByteLimit):
		return ByteLimitReached
	case !end.IsZero() && !now.Before(end):
		return TimeLimitReached
	}
	return ""
}

// TimeLimitEndsAt is when the run's time is used up; zero without a limit.
func (s *State) TimeLimitEndsAt(c *Config) time.Time {
	if c.TimeLimit <= 0 {
		return time.Time{}
	}
	return s.TimeLimitStartedAt.Add(c.TimeLimit)
}

// valueOrZero is 0 for what is not known, which no target is.
func valueOrZero(x *float64) float64 {
	if x == nil {
		return 0
	}
	return *x
}

// lowerMedian returns the lower of two middle values.
func lowerMedian(all []float64) float64 {
	return slices.Sorted(slices.Values(all))[(len(all)-1)/2]
}

func mean(all []float64) float64 {
	sum := 0.0
	for _, x := range all {
		sum += x / float64(len(all)) // a device may tell the largest number
	}
	return sum
}
