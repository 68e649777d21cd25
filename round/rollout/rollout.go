package rollout

import (
	"math"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// Model is a model, and its file.
type Model struct {
	wire.ModelName
	File wire.BlobRef
}

// State is where the rollout stands. It is in the journal.
type State struct {
	Released  Model
	Candidate Model          `json:",omitzero"`
	Since     time.Time      `json:",omitzero"` // of the candidate
	Withdrawn wire.ModelName `json:",omitzero"` // the last candidate that was
}

// Announcement is what agents are told.
func (s *State) Announcement(c *Config) wire.Rollout {
	r := wire.Rollout{Released: s.Released.ModelName, Candidate: s.Candidate.ModelName}
	if r.Candidate.Present() {
		r.AgentShare = c.Share.Fraction()
	}
	return r
}

// NominateCandidate takes the newest model for the next candidate, if there is none and the model is a new one, or for
// the released model if there is none. It reports whether it did.
func (s *State) NominateCandidate(c *Config, now time.Time, newest Model, finished bool) bool {
	switch {
	case !c.On(), !newest.Present(), !newest.File.Present(), !c.mayRelease(newest.Version, finished),
		s.Candidate.Present(), newest.Hash == s.Released.Hash, !newest.NewerThan(s.Withdrawn):
		return false
	case !s.Released.Present():
		s.Release(newest)
		return true
	case !newest.NewerThan(s.Released.ModelName):
		return false
	}
	s.Candidate, s.Since = newest, now.UTC().Truncate(time.Millisecond)
	return true
}

// Release releases a model at once, if it has a file.
func (s *State) Release(m Model) {
	if m.File.Present() {
		s.Released = m
	}
}

// Settle is the time in which every agent of the share is heard: no candidate is judged before, since those that are
// heard first may be others than most.
const Settle = 30 * time.Minute

// Result is how the rollout of a candidate has ended. It is a metric's label.
type Result string

// The results.
const (
	First     Result = "first"      // there was none before: it is released at once
	Widened   Result = "widened"    // the candidate is released
	Worse     Result = "worse"      // than the released model: withdrawn
	NoReports Result = "no_reports" // too few agents have judged it in time: withdrawn
)

// Results returns all results, for closed label sets.
func Results() []Result { return []Result{First, Widened, Worse, NoReports} }

// Verdict is what the residuals of a candidate say.
type Verdict struct {
	Result           Result  // empty = it is too early
	Agents           int     // of the share that were heard
	VotingAgents     int     // of these, that have enough residuals, or refuse the candidate
	MedianErrorRatio float64 // at the median of those that have judged; +Inf if that refuses, NaN if there are none
}

// Judge holds the residuals of the candidate against those of the released model. heard is the last word of each agent
// of the share since the time from; said before that is not known.
//
// Each agent has one vote: the ratio of its two mean squares, +Inf if it refuses the candidate. The median decides, of
// an even number the larger of the middle two: it lies between those of honest agents as long as most are. So as not to
// listen to those that are early only, most of the agents that were heard must have judged, unless the time is over.
func (s *State) Judge(c *Config, now, from time.Time, heard map[wire.AgentID]wire.CandidateResiduals) Verdict {
	v := Verdict{Agents: len(heard), MedianErrorRatio: math.NaN()}
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
	due := !now.Before(s.CandidateJudgedAt(c, from))
	switch {
	case now.Sub(later(s.Since, from)) < Settle, !due && (v.VotingAgents < c.MinDecidingAgents ||
		2*v.VotingAgents <= v.Agents):
	case v.VotingAgents < c.MinDecidingAgents:
		v.Result = NoReports
	case v.MedianErrorRatio > 1+c.ErrorMargin:
		v.Result = Worse
	default:
		v.Result = Widened
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

// CandidateJudgedAt is when a candidate is judged by those that have come.
func (s *State) CandidateJudgedAt(c *Config, from time.Time) time.Time {
	return later(s.Since.Add(c.TrialDuration), from.Add(Settle))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// EndTrial releases or withdraws the candidate.
func (s *State) EndTrial(r Result) {
	if r == Widened {
		s.Released = s.Candidate
	} else {
		s.Withdrawn = s.Candidate.ModelName
	}
	s.Candidate, s.Since = Model{}, time.Time{}
}
