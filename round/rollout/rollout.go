package rollout

import (
	"math"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// Model identifies a model and contains a reference to its file.
type Model struct {
	wire.ModelRef
	File wire.BlobRef
}

// State is the state of the staged release: the released model and the candidate. It is stored in the coordinator's
// journal.
type State struct {
	Released  Model
	Candidate Model `json:",omitzero"`
	// time at which the trial of the current candidate began
	CandidateNominatedAt time.Time     `json:"Since,omitzero"`
	LastWithdrawn        wire.ModelRef `json:"Withdrawn,omitzero"` // last candidate model that was withdrawn
}

// AnnouncedRollout returns the part of an announcement that informs agents of the released model and the candidate.
func (s *State) AnnouncedRollout(c *Config) wire.Rollout {
	r := wire.Rollout{ReleasedModel: s.Released.ModelRef, CandidateModel: s.Candidate.ModelRef}
	if r.CandidateModel.IsSet() {
		r.CandidateAgentShare = c.Share.Fraction()
	}
	return r
}

// NominateCandidate makes the newest model the candidate if there is no other candidate and the model was not tried
// before. If no model is released yet, the newest model is released at once. The result reports whether the state has
// changed.
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

// ReleaseModel releases a model to all agents without a trial. It does nothing if the model has no file.
func (s *State) ReleaseModel(m Model) {
	if m.File.IsSet() {
		s.Released = m
	}
}

// MinTrialDuration is the minimum duration of a trial. It gives every agent of the share time to report, since the
// first agents to report may not be representative.
const MinTrialDuration = 30 * time.Minute

// Result is the outcome of a candidate's trial, used as a metric label.
type Result string

// Outcomes of a candidate's trial.
const (
	// The model was released at once, since no model was released before.
	FirstModelReleased Result = "first"
	CandidateReleased  Result = "widened" // the candidate was released to all agents after its trial
	// The candidate was withdrawn, since it was worse than the released model.
	CandidateWorse Result = "worse"
	// The candidate was withdrawn, since too few agents judged it in time.
	TooFewReports Result = "no_reports"
)

// AllResults returns all outcomes of a trial, for use as metric labels.
func AllResults() []Result {
	return []Result{FirstModelReleased, CandidateReleased, CandidateWorse, TooFewReports}
}

// Verdict is the result of comparing a candidate's prediction errors with those of the released model.
type Verdict struct {
	Result          Result // outcome of the trial; empty if it is too early to judge
	ReportingAgents int    // number of agents in the trial that have reported
	VotingAgents    int    // number of reporting agents that either have enough residuals or refuse the candidate
	// median over the voting agents of the candidate's error divided by the released model's error; +Inf if the median
	// agent refuses the candidate, NaN without votes
	MedianErrorRatio float64
}

// JudgeCandidate compares the prediction errors of the candidate with the prediction errors of the released model. The
// map heard contains the last report that each agent in the trial has sent since the time from.
//
// Each agent has one vote: the candidate's mean squared error divided by the released model's mean squared error, or
// +Inf if the agent refuses the candidate. The upper median of the votes decides, since a minority of malicious agents
// cannot move it far. Before the deadline, most of the reporting agents must have voted, so that early agents do not
// decide alone.
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

// errorRatio returns the candidate's mean squared error divided by the released model's mean squared error. It also
// returns whether the agent has a vote.
func (c *Config) errorRatio(r wire.CandidateResiduals) (float64, bool) {
	switch {
	case r.CandidateRefused:
		return math.Inf(1), true
	case int64(r.LabeledRows) < int64(c.MinResiduals), r.CandidateMeanSquare < 0, r.ReleasedMeanSquare < 0:
		return 0, false
	case r.CandidateMeanSquare == 0:
		return 1, true
	}
	// The ratio of the two mean square errors is +Inf if the released model's error is 0.
	return math.Abs(r.CandidateMeanSquare / r.ReleasedMeanSquare), true
}

// JudgingDeadline returns the time at which the candidate is judged even if few votes have been received.
func (s *State) JudgingDeadline(c *Config, from time.Time) time.Time {
	return laterTime(s.CandidateNominatedAt.Add(c.TrialTimeout), from.Add(MinTrialDuration))
}

func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// EndTrial ends the trial with the given result: it releases or withdraws the candidate.
func (s *State) EndTrial(r Result) {
	if r == CandidateReleased {
		s.Released = s.Candidate
	} else {
		s.LastWithdrawn = s.Candidate.ModelRef
	}
	s.Candidate, s.CandidateNominatedAt = Model{}, time.Time{}
}
