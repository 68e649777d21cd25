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
	Rounds   Reason = "rounds"   // it has made all its aggregations
	Risk     Reason = "risk"     // the target is reached
	R2       Reason = "r2"       // the same
	Accuracy Reason = "accuracy" // the same
	Patience Reason = "patience" // the risk has not improved for long
	Time     Reason = "time"     // its time is used up
	Bytes    Reason = "bytes"    // its bytes are
	Asked    Reason = "asked"    // a person has stopped it
)

// Reasons returns all reasons, for closed label sets.
func Reasons() []Reason { return []Reason{Rounds, Risk, R2, Accuracy, Patience, Time, Bytes, Asked} }

// Window is of how many aggregations the risk is the mean where there are no held-out data: each round has other
// participants, and so another risk.
const Window = 5

// Measurements are what was measured of a new model; nil where it was not.
type Measurements struct {
	Risk, R2, Accuracy *float64 // on held-out data
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

// mostKnown is the largest number of agents whose risks are compared one by one. In a larger federation the medians of
// all participants are compared: a few agents change them little.
const mostKnown = 256

// AgentRiskHistory is a member of the federation.
type AgentRiskHistory struct {
	Agent wire.AgentID
	// Told are its reports in the [Window] aggregations up to its last report, since the membership last changed.
	Told []VersionRisk `json:",omitempty"`
	// Best is its mean risk when the best risk was found, or else its first mean risk after that; nil before.
	Best *float64 `json:",omitempty"`
}

// VersionRisk is a risk reported for the aggregation that made a version.
type VersionRisk struct {
	Version wire.ModelVersion
	Risk    float64
}

// meanReportedRisk returns the mean of the agent's reports.
func (k *AgentRiskHistory) meanReportedRisk() float64 {
	sum := 0.0
	for _, t := range k.Told {
		sum += t.Risk / float64(len(k.Told)) // divided before the sum, which may overflow otherwise
	}
	return sum
}

// State is how far a run has come. It is in the journal. Slices are replaced and never changed.
type State struct {
	Since        time.Time `json:",omitzero"`  // the time counts from it
	Bytes        uint64    `json:",omitempty"` // carried since then
	R2, Accuracy float64   `json:",omitzero"`  // of the newest model; 0 = not known

	HeldOut bool               `json:",omitempty"` // the risks are those on held-out data
	Told    []float64          `json:",omitempty"` // else the last medians, the newest last
	Judged  int                `json:",omitempty"` // risks so far
	Risk    float64            `json:",omitzero"`  // the last one
	Best    float64            `json:",omitzero"`  // the lowest that counted as an improvement
	BestAt  wire.ModelVersion  `json:",omitempty"` // the model whose aggregation had it
	Without int                `json:",omitempty"` // risks since then
	Noted   int                `json:",omitempty"` // aggregations with reports of known agents so far
	Agents  []AgentRiskHistory `json:",omitempty"` // members, in id order; none with held-out data or in a large federation
	Large   bool               `json:",omitempty"` // the federation has more agents than are compared one by one
	// Rescaled says that the risks to come are in other columns, and not to be compared with those before.
	Rescaled bool `json:",omitempty"`
}

// Resume takes up the state in a process with this rule. The first rule of a
// run counts from now, and a changed one with what was counted before.
func (s *State) Resume(c *Config, now time.Time) {
	if !c.On() {
		*s = State{}
	} else if s.Since.IsZero() {
		s.Since = now.UTC().Truncate(time.Millisecond)
	}
}

// RecordModel takes the figures of a new model. Without held-out data the risk of an agent is the mean of its reports
// in the last [Window] aggregations, and the risk of the model is the median over the agents that reported in these.
// All counts start again when an agent joins; the risk is known from the [Window]-th aggregation after that.
func (s *State) RecordModel(c *Config, version wire.ModelVersion, f Measurements) {
	s.R2, s.Accuracy = valueOrZero(f.R2), valueOrZero(f.Accuracy)
	if held := f.Risk != nil; s.Rescaled || held != s.HeldOut {
		s.ForgetRisks()
		if s.Rescaled, s.HeldOut = false, held; held {
			s.Agents = nil
		}
	}
	switch {
	case s.HeldOut:
		s.compareWithBest(c, version, *f.Risk)
	case s.comparesAgents(f.AgentRisks):
		s.judgeAgentRisks(c, version, f.AgentRisks)
	case f.MedianAgentRisk != nil:
		s.Told = append(slices.Clone(s.Told[max(0, len(s.Told)-(Window-1)):]), *f.MedianAgentRisk)
		if len(s.Told) == Window {
			s.compareWithBest(c, version, mean(s.Told))
		}
	}
}

// compareWithBest compares a risk with the best one.
func (s *State) compareWithBest(c *Config, version wire.ModelVersion, risk float64) {
	s.Risk = risk
	s.Without++
	if s.Judged == 0 || risk < s.Best-c.MinImprovementShare*math.Abs(s.Best) {
		s.Best, s.BestAt, s.Without = risk, version, 0
	}
	s.Judged++
}

// comparesAgents reports whether the agents' risks are compared one by one. It adds agents that are not known yet.
func (s *State) comparesAgents(agents []AgentRisk) bool {
	for _, a := range agents {
		s.AddAgent(a.Agent)
	}
	return len(agents) > 0 && !s.Large
}

// AddAgent adds an agent that has not been a member before. All counts start again, since the risks so far are the
// risks of another group of agents. With held-out data agents are not counted.
func (s *State) AddAgent(a wire.AgentID) {
	i, known := s.find(a)
	if known || s.HeldOut || s.Large {
		return
	}
	s.ForgetRisks()
	if s.Large = len(s.Agents) == mostKnown; s.Large {
		s.Agents = nil
		return
	}
	s.Agents = slices.Insert(slices.Clone(s.Agents), i, AgentRiskHistory{Agent: a})
}

func (s *State) find(a wire.AgentID) (int, bool) {
	i := sort.Search(len(s.Agents), func(i int) bool { return s.Agents[i].Agent >= a })
	return i, i < len(s.Agents) && s.Agents[i].Agent == a
}

// judgeAgentRisks judges the risks of the agents that reported in the last [Window] aggregations. Each agent is
// compared with itself: with its risk when the best risk was found, or with its first risk after that. So it does not
// matter which agents are drawn.
func (s *State) judgeAgentRisks(c *Config, version wire.ModelVersion, agents []AgentRisk) {
	all := slices.Clone(s.Agents)
	for _, a := range agents {
		i, _ := s.find(a.Agent)
		recent := slices.DeleteFunc(slices.Clone(all[i].Told),
			func(t VersionRisk) bool { return t.Version+Window <= version })
		all[i].Told = append(recent, VersionRisk{version, a.Risk})
	}
	s.Agents = all
	if s.Noted++; s.Noted < Window {
		return
	}
	var now, best []float64
	for i := range all {
		k := &all[i]
		if n := len(k.Told); n == 0 || k.Told[n-1].Version+Window <= version {
			continue
		}
		risk := k.meanReportedRisk()
		if k.Best == nil {
			k.Best = &risk
		}
		now, best = append(now, risk), append(best, *k.Best)
	}
	before := median(best)
	better := s.Judged == 0 || median(now) < before-c.MinImprovementShare*math.Abs(before)
	s.Risk = median(now)
	s.Judged++
	s.Without++
	if !better {
		return
	}
	s.Best, s.BestAt, s.Without = s.Risk, version, 0
	for i := range all {
		if len(all[i].Told) > 0 {
			risk := all[i].meanReportedRisk()
			all[i].Best = &risk
		}
	}
}

// RemoveAgent removes an agent that is no longer a member, or whose data no longer fit. The risks so far are dropped,
// since they are those of another group of agents.
func (s *State) RemoveAgent(a wire.AgentID) {
	i, known := s.find(a)
	if !known {
		return
	}
	s.ForgetRisks()
	s.Agents = slices.Delete(slices.Clone(s.Agents), i, i+1)
}

// ForgetRisks drops the risks so far, which are not to be compared with those to come.
func (s *State) ForgetRisks() {
	s.Told, s.Judged, s.Risk, s.Best, s.BestAt, s.Without, s.Noted = nil, 0, 0, 0, 0, 0, 0
	s.Agents = slices.Clone(s.Agents)
	for i := range s.Agents {
		s.Agents[i].Told, s.Agents[i].Best = nil, nil
	}
}

// StopReason returns why the run is over; empty if it is not.
func (s *State) StopReason(c *Config, now time.Time) Reason {
	switch end := s.EndsAt(c); {
	case c.TargetRisk > 0 && s.Judged > 0 && s.Risk <= c.TargetRisk:
		return Risk
	case c.TargetR2 > 0 && s.R2 >= c.TargetR2:
		return R2
	case c.TargetAccuracy > 0 && s.Accuracy >= c.TargetAccuracy:
		return Accuracy
	case c.Patience > 0 && s.Without >= c.Patience:
		return Patience
	case c.ByteLimit > 0 && s.Bytes >= uint64(c.ByteLimit):
		return Bytes
	case !end.IsZero() && !now.Before(end):
		return Time
	}
	return ""
}

// EndsAt is when the run's time is used up; zero without a limit.
func (s *State) EndsAt(c *Config) time.Time {
	if c.TimeLimit <= 0 {
		return time.Time{}
	}
	return s.Since.Add(c.TimeLimit)
}

// valueOrZero is 0 for what is not known, which no target is.
func valueOrZero(x *float64) float64 {
	if x == nil {
		return 0
	}
	return *x
}

// median returns the lower of two middle values.
func median(all []float64) float64 {
	return slices.Sorted(slices.Values(all))[(len(all)-1)/2]
}

func mean(all []float64) float64 {
	sum := 0.0
	for _, x := range all {
		sum += x / float64(len(all)) // a device may tell the largest number
	}
	return sum
}
