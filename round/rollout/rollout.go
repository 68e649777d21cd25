package rollout

import (
	"math"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// Model is a model, and its file.
type Model struct {
	wire.ModelRef
	File wire.BlobRef
}

// State is where the rollout stands. It is in the journal.
type State struct {
	Released             Model
	Candidate            Model         `json:",omitzero"`
	CandidateNominatedAt time.Time     `json:"Since,omitzero"`     // of the candidate
	LastWithdrawn        wire.ModelRef `json:"Withdrawn,omitzero"` // the last candidate that was
}

// AnnouncedRollout is what agents are told.
func (s *State) AnnouncedRollout(c *Config) wire.Rollout {
	r := wire.Rollout{ReleasedModel: s.Released.ModelRef, CandidateModel: s.Candidate.ModelRef}
	if r.CandidateModel.IsSet() {
		r.CandidateAgentShare = c.Share.Fraction()
	}
	return r
}

// NominateCandidate takes the newest model for the next candidate, if there is none and the model is a new one, or for
// the released model if there is none. It reports whether it did.
func (s *State) NominateCandidate(c *Config, now time.Time, newest Model, finished bool) bool {
	switch {
	case !c.IsEnabled(), !newest.IsSet(), !newest.File.IsSet(), !c.mayReleaseVersion(newest.Version, finished),
		s.Candidate.IsSet(), newest.ParametersDigest == s.Released.ParametersDigest,
		!newest.IsNewerThan(s.LastWithdrawn):
		return false
	case !s.Released.IsSet():
		s.ReleaseModel(newest)
		return true
	case !newest.IsNewerThan(s.Released.ModelRef):
		return false
	}
	s.Candidate, s.CandidateNominatedAt = newest, now.UTC().Truncate(time.Millisecond)
	return true
}

// ReleaseModel releases a model at once, if it has a file.
func (s *State) ReleaseModel(m Model) {
	if m.File.IsSet() {
		s.Released = m
	}
}

// MinTrialDuration is the time in which every agent of the share is heard: no candidate is judged before, since those
// that are heard first may be others than most.
const MinTrialDuration = 30 * time.Minute

// Result is how the rollout of a candidate has ended. It is a metric's label.
type Result string

// The results.
const (
	FirstModelReleased Result = "first"      // there was none before: it is released at once
	CandidateReleased  Result = "widened"    // the candidate is released
	CandidateWorse     Result = "worse"      // than the released model: withdrawn
	TooFewReports      Result = "no_reports" // too few agents have judged it in time: withdrawn
)

// AllResults returns all results, for closed label sets.
func AllResults() []Result {
	return []Result{FirstModelReleased, CandidateReleased, CandidateWorse, TooFewReports}
}

// Verdict is what the residuals of a candidate say.
type Verdict struct {
	Result           Result  // empty = it is too early
	ReportingAgents  int     // of the share that were heard
	VotingAgents     int     // of these, that have enough residuals, or refuse the candidate
	MedianErrorRatio float64 // at the median of those that have judged; +Inf if that refuses, NaN if there are none
}

// JudgeCandidate holds the residuals of the candidate against those of the released model. heard is the last word of
// each agent of the share since the time from; said before that is not known.
//
// Each agent has one vote: the ratio of its two mean squares, +Inf if it refuses the candidate. The median decides, of
// an even number the larger of the middle two: it lies between those of honest agents as long as most are. So as not to
// listen to those that are early only, most of the agents that were heard must have judged, unless the time is over.
func (s *State) JudgeCandidate(c *Config, now, from time.Time, heard map[wire.AgentID]wire.CandidateResiduals) Verdict {
	v := Verdict{ReportingAgents: len(heard), MedianErrorRatio: math.NaN()}
	var votes []float64
	for _, r := range heard {
		if vote, ok := c.errorRatio(r); ok {
			votes = append(votes, vote)
		}
	}
	v.VotingAgents = len(votes)
	if v.VotingAgents > 0 {
		slices.Sort(votes)
		v.MedianErrorRatio = votes[len(votes)/2]
	}
	due := !now.Before(s.JudgingDeadline(c, from))
	switch {
	case now.Sub(laterTime(s.CandidateNominatedAt, from)) < MinTrialDuration,
		!due && (v.VotingAgents < c.MinDecidingAgents ||
			2*v.VotingAgents <= v.ReportingAgents):
	case v.VotingAgents < c.MinDecidingAgents:
		v.Result = TooFewReports
	case v.MedianErrorRatio > 1+c.ErrorMargin:
		v.Result = CandidateWorse
	default:
		v.Result = CandidateReleased
	}
	return v
}

// errorRatio is the ratio of an agent's mean squares, if it has one.
func (c *Config) errorRatio(r wire.CandidateResiduals) (float64, bool) {
	switch {
	case r.CandidateRefused:
		return math.Inf(1), true
	case int64(r.LabeledRows) < int64(c.MinResiduals), r.CandidateMeanSquare < 0, r.ReleasedMeanSquare < 0:
		return 0, false
	case r.CandidateMeanSquare == 0:
		return 1, true
	}
	return math.Abs(r.CandidateMeanSquare / r.ReleasedMeanSquare), true // +Inf for 0, and for −0
}

// JudgingDeadline is when a candidate is judged by those that have come.
func (s *State) JudgingDeadline(c *Config, from time.Time) time.Time {
	return laterTime(s.CandidateNominatedAt.Add(c.TrialTimeout), from.Add(MinTrialDuration))
}

func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// EndTrial releases or withdraws the candidate.
func (s *State) EndTrial(r Result) {
	if r == CandidateReleased {
		s.Released = s.Candidate
	} else {
		s.LastWithdrawn = s.Candidate.ModelRef
	}
	s.Candidate, s.CandidateNominatedAt = Model{}, time.Time{}
}
