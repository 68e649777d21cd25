package stop

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// Reason is the reason why a run is over, used as a metric label.
type Reason string

// Reasons why a run is over.
const (
	MaxAggregationsReached Reason = "rounds"
	TargetRiskReached      Reason = "risk"
	TargetR2Reached        Reason = "r2"
	TargetAccuracyReached  Reason = "accuracy"
	// The risk has not improved for the configured number of aggregations.
	PatienceExhausted Reason = "patience"
	TimeLimitReached  Reason = "time"
	ByteLimitReached  Reason = "bytes"
	StoppedByOperator Reason = "asked" // an operator has stopped the run
)

// AllReasons returns all reasons for the end of a run, for use as metric labels.
func AllReasons() []Reason {
	return []Reason{MaxAggregationsReached, TargetRiskReached, TargetR2Reached, TargetAccuracyReached,
		PatienceExhausted, TimeLimitReached, ByteLimitReached, StoppedByOperator}
}

// RiskWindowAggregations is the number of aggregations over which the risks that agents report are averaged if there
// are no held-out data. A single round is not enough, since each round has different participants.
const RiskWindowAggregations = 5

// Measurements contains the measurements of a new model. A nil value was not measured.
type Measurements struct {
	HeldOutRisk, R2, Accuracy *float64 // risk and scores on held-out data
	// MedianAgentRisk is the median of the risks that the participants reported for the previous model. A single
	// malicious agent can hardly change the median, unlike the mean.
	MedianAgentRisk *float64
	// AgentRisks contains the risk of the previous model that each participant has reported.
	AgentRisks []AgentRisk
}

// AgentRisk is the risk that one agent reported for a model.
type AgentRisk struct {
	Agent wire.AgentID
	Risk  float64
}

// maxComparedAgents is the maximum number of agents whose risks are compared agent by agent. Larger federations compare
// medians over all participants, which a few agents hardly change.
const maxComparedAgents = 256

// AgentRiskHistory contains the recently reported risks of one agent.
type AgentRiskHistory struct {
	Agent wire.AgentID
	// ReportedRisks are the risks that the agent reported in the last [RiskWindowAggregations] aggregations up to its
	// newest report. The list is cleared when an agent joins or leaves the federation.
	ReportedRisks []VersionRisk `json:"Told,omitempty"`
	// BaselineRisk is the agent's mean risk when the best risk of the run was found, or the agent's first mean risk
	// after that. It is nil if neither is known.
	BaselineRisk *float64 `json:"Best,omitempty"`
}

// VersionRisk is the risk that an agent reported for a model version.
type VersionRisk struct {
	Version wire.ModelVersion
	Risk    float64
}

func (k *AgentRiskHistory) meanReportedRisk() float64 {
	sum := 0.0
	for _, t := range k.ReportedRisks {
		sum += t.Risk / float64(len(k.ReportedRisks)) // Divide before summation to avoid overflow.
	}
	return sum
}

// State is the progress of a run towards its stopping rules. The journal contains it. The slices in a State are never
// modified in place, so that a copy of the State remains valid.
type State struct {
	TimeLimitStartedAt time.Time `json:"Since,omitzero"`  // start of the period to which the time limit applies
	TransferredBytes   uint64    `json:"Bytes,omitempty"` // bytes transferred since TimeLimitStartedAt
	// R² and accuracy of the newest model on held-out data; 0 means unknown
	R2, Accuracy float64 `json:",omitzero"`

	// whether risks are measured on held-out data instead of reported by agents
	UsesHeldOutRisk bool `json:"HeldOut,omitempty"`
	// most recent medians of the risks that agents reported, newest last; empty if risks are measured on held-out data
	RecentMedianRisks []float64 `json:"Told,omitempty"`
	// number of risks that were compared with the best risk so far
	JudgedRiskCount int     `json:"Judged,omitempty"`
	LatestRisk      float64 `json:"Risk,omitzero"` // newest risk that was compared with the best risk so far
	// lowest risk so far; decreases smaller than MinImprovementShare are ignored
	BestRisk    float64           `json:"Best,omitzero"`
	BestVersion wire.ModelVersion `json:"BestAt,omitempty"` // version of the model with the best risk
	// number of risks compared since the best risk was found
	AggregationsSinceBest int `json:"Without,omitempty"`
	// number of aggregations in which known agents reported risks
	AggregationsWithReports int `json:"Noted,omitempty"`
	// AgentRiskHistories are the histories of all agents in id order. The list is empty if risks are measured on
	// held-out data, and in large federations.
	AgentRiskHistories []AgentRiskHistory `json:"Agents,omitempty"`
	// whether the federation has more agents than can be compared agent by agent (maxComparedAgents)
	ExceedsAgentLimit bool `json:"Large,omitempty"`
	// NextRisksIncomparable is true if later risks refer to data columns with a different scaling and cannot be
	// compared with earlier risks.
	NextRisksIncomparable bool `json:"Rescaled,omitempty"`
}

// Resume prepares the state for the stopping rules of a new process. The periods of the time limit and the byte limit
// begin when the first rule of a run is configured. If a rule has changed, the elapsed time and the bytes counted so
// far remain.
func (s *State) Resume(c *Config, now time.Time) {
	if !c.IsEnabled() {
		*s = State{}
	} else if s.TimeLimitStartedAt.IsZero() {
		s.TimeLimitStartedAt = now.UTC().Truncate(time.Millisecond)
	}
}

// RecordMeasurements records the measurements of a new model. Without held-out data, an agent's risk is the mean of the
// risks that it reported recently, and the model's risk is the median over the agents that reported recently.
// "Recently" means in the last [RiskWindowAggregations] aggregations. When an agent joins, counting starts from zero.
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

// compareWithBest compares a risk with the best risk so far. It updates the best risk, and the number of risks since
// the best risk was found.
func (s *State) compareWithBest(c *Config, version wire.ModelVersion, risk float64) {
	s.LatestRisk = risk
	s.AggregationsSinceBest++
	if s.JudgedRiskCount == 0 || risk < s.BestRisk-c.MinImprovementShare*math.Abs(s.BestRisk) {
		s.BestRisk, s.BestVersion, s.AggregationsSinceBest = risk, version, 0
	}
	s.JudgedRiskCount++
}

// comparesRisksPerAgent reports whether the agents' risks are compared agent by agent. It also adds agents that the
// state does not contain yet.
func (s *State) comparesRisksPerAgent(agents []AgentRisk) bool {
	for _, a := range agents {
		s.AddAgent(a.Agent)
	}
	return len(agents) > 0 && !s.ExceedsAgentLimit
}

// AddAgent adds a new agent. All counts start from zero, since the recorded risks belong to a different group of
// agents. AddAgent does nothing if risks are measured on held-out data.
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

// judgeAgentRisks records the risks that agents reported, and decides whether the risk has improved. It compares the
// median risk of the agents that reported recently with the median of the same agents' baselines. An agent's baseline
// is its risk when the best risk of the run was found, or its first risk after that. The result therefore does not
// depend on the random choice of participants.
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

// RemoveAgent removes an agent that has left the federation or whose data no longer fit. It also drops the recorded
// risks, since they belong to a different group of agents.
func (s *State) RemoveAgent(a wire.AgentID) {
	i, known := s.findAgent(a)
	if !known {
		return
	}
	s.ForgetRisks()
	s.AgentRiskHistories = slices.Delete(slices.Clone(s.AgentRiskHistories), i, i+1)
}

// ForgetRisks drops all recorded risks, because later risks cannot be compared with them.
func (s *State) ForgetRisks() {
	s.RecentMedianRisks, s.JudgedRiskCount, s.LatestRisk, s.BestRisk, s.BestVersion, s.AggregationsSinceBest,
		s.AggregationsWithReports = nil, 0, 0, 0, 0, 0, 0
	s.AgentRiskHistories = slices.Clone(s.AgentRiskHistories)
	for i := range s.AgentRiskHistories {
		s.AgentRiskHistories[i].ReportedRisks, s.AgentRiskHistories[i].BaselineRisk = nil, nil
	}
}

// StopReason returns the reason why the run must end now; it is empty if the run continues.
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

// TimeLimitEndsAt returns the time at which the run's time limit expires. It returns the zero time if there is no
// limit.
func (s *State) TimeLimitEndsAt(c *Config) time.Time {
	if c.TimeLimit <= 0 {
		return time.Time{}
	}
	return s.TimeLimitStartedAt.Add(c.TimeLimit)
}

// valueOrZero returns *x, or 0 if x is nil. A score of 0 never reaches a target value.
func valueOrZero(x *float64) float64 {
	if x == nil {
		return 0
	}
	return *x
}

// lowerMedian returns the median, or the lower middle value for an even number of values.
func lowerMedian(all []float64) float64 {
	return slices.Sorted(slices.Values(all))[(len(all)-1)/2]
}

func mean(all []float64) float64 {
	sum := 0.0
	for _, x := range all {
		sum += x / float64(len(all)) // Divide before summation to avoid overflow.
	}
	return sum
}
