package rollout_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/wire"
)

var began = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func config() *rollout.Config {
	c := rollout.DefaultConfig()
	// The error margin 0.5 is exactly representable in binary, so that tests can check the case in which an error ratio
	// equals the limit.
	c.Share, c.ErrorMargin, c.TrialTimeout = "10%", 0.5, 24*time.Hour
	return &c
}

func model(run wire.RunID, version wire.ModelVersion) rollout.Model {
	name := wire.ModelRef{Run: run, Version: version, ParametersDigest: wire.Digest{byte(run), byte(version)}}
	return rollout.Model{ModelRef: name, File: wire.BlobRef{Length: 1}}
}

// says returns the reports of several agents with enough rows. Each ratio is an agent's mean squared error of the
// candidate, divided by the agent's mean squared error of the released model.
func says(ratios ...float64) map[wire.AgentID]wire.CandidateResiduals {
	all := map[wire.AgentID]wire.CandidateResiduals{}
	for i, r := range ratios {
		all[wire.AgentID(fmt.Sprint("a", i))] = wire.CandidateResiduals{Run: 1, ModelVersion: 30, LabeledRows: 24,
			CandidateMeanSquare: 4 * r, ReleasedMeanSquare: 4}
	}
	return all
}

// with adds n agents that send the same report.
func with(all map[wire.AgentID]wire.CandidateResiduals, n int,
	r wire.CandidateResiduals) map[wire.AgentID]wire.CandidateResiduals {
	for range n {
		all[wire.AgentID(fmt.Sprint("b", len(all)))] = r
	}
	return all
}

func TestJudge(t *testing.T) {
	refused, few, none := wire.CandidateResiduals{CandidateRefused: true}, wire.CandidateResiduals{LabeledRows: 23,
		CandidateMeanSquare: 100, ReleasedMeanSquare: 1}, wire.CandidateResiduals{}
	for name, c := range map[string]struct {
		// time since the start of the trial, and length of the period in which reports were collected
		after, heardFor time.Duration
		heard           map[wire.AgentID]wire.CandidateResiduals
		want            rollout.Result
		ratio           float64
	}{
		"better":                  {time.Hour, time.Hour, says(0.8, 0.9, 0.7), rollout.CandidateReleased, 0.8},
		"as much worse as it may": {time.Hour, time.Hour, says(1.5, 1.5, 1.5), rollout.CandidateReleased, 1.5},
		"worse":                   {time.Hour, time.Hour, says(1.625, 1.625, 1.625), rollout.CandidateWorse, 1.625},
		"a liar cannot halt it": {time.Hour, time.Hour, says(0.75, 0.75, math.Inf(1)), rollout.CandidateReleased,
			0.75},
		"nor push it":             {time.Hour, time.Hour, says(2, 2, 0), rollout.CandidateWorse, 2},
		"two of four liars can":   {time.Hour, time.Hour, says(0.75, 0.75, 9, 9), rollout.CandidateWorse, 9},
		"one of four cannot":      {time.Hour, time.Hour, says(0.75, 0.75, 0.75, 9), rollout.CandidateReleased, 0.75},
		"refused by one of three": {time.Hour, time.Hour, with(says(1, 1), 1, refused), rollout.CandidateReleased, 1},
		"refused by most": {time.Hour, time.Hour, with(says(1), 2, refused), rollout.CandidateWorse,
			math.Inf(1)},
		"too few agents":         {23 * time.Hour, 23 * time.Hour, says(1, 1), "", 1},
		"too few rows":           {time.Hour, time.Hour, with(says(1, 1), 1, few), "", 1},
		"the early are not most": {time.Hour, time.Hour, with(says(9, 9, 9), 3, few), "", 9},
		"the early are most":     {time.Hour, time.Hour, with(says(9, 9, 9, 9), 3, none), rollout.CandidateWorse, 9},
		"most are silent in time": {24 * time.Hour, 24 * time.Hour, with(says(1, 1, 1), 9, few),
			rollout.CandidateReleased, 1},
		"all are silent":            {24 * time.Hour, 24 * time.Hour, nil, rollout.TooFewReports, math.NaN()},
		"most are silent":           {24 * time.Hour, 24 * time.Hour, says(1, 1), rollout.TooFewReports, 1},
		"nobody can be heard yet":   {29 * time.Minute, time.Hour, says(9, 9, 9), "", 9},
		"not all are heard yet":     {20 * time.Hour, 29 * time.Minute, says(9, 9, 9), "", 9},
		"a restart at the very end": {30 * time.Hour, 29 * time.Minute, nil, "", math.NaN()},
		"a restart before the end":  {30 * time.Hour, 30 * time.Minute, says(1, 1, 1), rollout.CandidateReleased, 1},
		"both exact": {time.Hour, time.Hour, with(says(), 3, wire.CandidateResiduals{LabeledRows: 24}),
			rollout.CandidateReleased,
			1},
		"only the old one exact": {time.Hour, time.Hour, with(says(), 3, wire.CandidateResiduals{LabeledRows: 24,
			CandidateMeanSquare: 1}),
			rollout.CandidateWorse, math.Inf(1)},
		"a negative square": {24 * time.Hour, 24 * time.Hour,
			with(says(), 3, wire.CandidateResiduals{LabeledRows: 24, CandidateMeanSquare: -1, ReleasedMeanSquare: 1}),
			rollout.TooFewReports, math.NaN()},
		"a zero with a sign": {time.Hour, time.Hour, with(says(), 3, wire.CandidateResiduals{LabeledRows: 24,
			CandidateMeanSquare: 1,
			ReleasedMeanSquare:  math.Copysign(0, -1)}), rollout.CandidateWorse, math.Inf(1)},
	} {
		s := rollout.State{Released: model(1, 20), Candidate: model(1, 30), CandidateNominatedAt: began}
		now := began.Add(c.after)
		v := s.JudgeCandidate(config(), now, now.Add(-c.heardFor), c.heard)
		if v.Result != c.want || v.MedianErrorRatio != c.ratio && !(math.IsNaN(v.MedianErrorRatio) &&
			math.IsNaN(c.ratio)) ||
			v.ReportingAgents != len(c.heard) {
			t.Errorf("%s: %+v, want %q at %v", name, v, c.want, c.ratio)
		}
	}
}

// TestDeadline checks that a candidate without any reports is judged exactly at its deadline.
func TestDeadline(t *testing.T) {
	s := rollout.State{Released: model(1, 20), Candidate: model(1, 30), CandidateNominatedAt: began}
	for _, from := range []time.Time{began.Add(-time.Hour), began.Add(time.Hour), began.Add(48 * time.Hour)} {
		at := s.JudgingDeadline(config(), from)
		if s.JudgeCandidate(config(), at, from, nil).Result != rollout.TooFewReports ||
			s.JudgeCandidate(config(), at.Add(-1), from, nil).Result != "" {
			t.Errorf("heard from %v: %v", from, at)
		}
	}
}

// TestCourse checks that the first model is released at once and that each later model becomes a candidate after the
// previous candidate was judged. A withdrawn model must not become a candidate again. A model of a later run must
// become a candidate even if its version number is lower.
func TestCourse(t *testing.T) {
	c, s, now := config(), &rollout.State{}, began
	next := func(m rollout.Model, finished, want bool) {
		t.Helper()
		if got := s.NominateCandidate(c, now, m, finished); got != want {
			t.Errorf("model %d/%d: %t; %+v", m.Run, m.Version, got, s)
		}
	}
	next(model(1, 19), false, false)
	next(model(1, 20), false, true)
	if s.Released.ModelRef != model(1, 20).ModelRef || s.Candidate.IsSet() {
		t.Errorf("%+v", s)
	}
	next(model(1, 20), false, false)
	// A model without a file cannot become a candidate.
	next(rollout.Model{ModelRef: model(1, 21).ModelRef}, false, false)
	next(model(1, 21), false, true)
	next(model(1, 22), false, false)
	if a := s.AnnouncedRollout(c); a.ReleasedModel.Version != 20 || a.CandidateModel.Version != 21 ||
		a.CandidateAgentShare != 0.1 ||
		!s.CandidateNominatedAt.Equal(now) {
		t.Errorf("%+v", a)
	}
	s.EndTrial(rollout.CandidateReleased)
	next(model(1, 21), false, false)
	next(model(1, 23), false, true)
	s.EndTrial(rollout.CandidateWorse)
	if s.Released.Version != 21 || s.AnnouncedRollout(c) != (wire.Rollout{ReleasedModel: model(1, 21).ModelRef}) {
		t.Errorf("%+v", s)
	}
	next(model(1, 22), false, false)
	next(model(1, 23), true, false)
	next(model(1, 24), true, true)
	s.EndTrial(rollout.TooFewReports)
	next(model(2, 5), false, false)
	next(model(2, 5), true, true)
	s.EndTrial(rollout.CandidateWorse)
	s.Released = rollout.Model{} // Simulate the loss of the released model.
	next(model(2, 5), true, false)
	next(model(2, 6), true, true)
	if s.Released.ModelRef != model(2, 6).ModelRef {
		t.Errorf("%+v", s)
	}
}

func TestShare(t *testing.T) {
	for text, want := range map[string]float64{"10%": 0.1, "100%": 1, "0.5 %": 0.005, "": 0} {
		var s rollout.AgentShare
		if err := s.UnmarshalText([]byte(text)); err != nil || s.Fraction() != want {
			t.Errorf("%q: %v, %v", text, s.Fraction(), err)
		}
	}
	for _, text := range []string{"10", "0.1", "0%", "101%", "-1%", "NaN%", "%", "ten%"} {
		var s rollout.AgentShare
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken for %v", text, s.Fraction())
		}
	}
}

func TestValidate(t *testing.T) {
	c := config()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*rollout.Config){
		"rollout":       func(c *rollout.Config) { c.Share = "a lot" },
		"devices":       func(c *rollout.Config) { c.MinDecidingAgents = 0 },
		"residuals":     func(c *rollout.Config) { c.MinResiduals = 0 },
		"margin":        func(c *rollout.Config) { c.ErrorMargin = -1 },
		"within":        func(c *rollout.Config) { c.TrialTimeout = rollout.MinTrialDuration },
		"first_version": func(c *rollout.Config) { c.FirstVersion = -1 },
	} {
		c := config()
		if change(c); c.Validate() == nil {
			t.Errorf("a wrong %s is taken", name)
		}
		if c.Share = ""; c.Validate() != nil {
			t.Errorf("%s is wrong without a rollout", name)
		}
	}
}
