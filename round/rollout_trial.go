package round

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/wire"
)

// rolloutTrial is what this process knows of the candidate. Agents tell all of it again after a restart.
type rolloutTrial struct {
	reportsCountedSince time.Time // since then agents are heard
	residualsByAgent    map[wire.AgentID]wire.CandidateResiduals
	judgeAt             time.Time // zero without a candidate
}

// judgeEvery is how often a candidate is judged at most, which takes time for each agent that was heard.
const judgeEvery = time.Minute

// startRolloutTrial goes on with the candidate of the record, if there is one.
func (c *Coordinator) startRolloutTrial(now time.Time) {
	c.rolloutTrial = rolloutTrial{reportsCountedSince: now,
		residualsByAgent: map[wire.AgentID]wire.CandidateResiduals{}}
	if c.rec.Rollout.Candidate.Present() {
		c.rolloutTrial.judgeAt = now.Add(rollout.Settle)
	}
}

// nominateCandidate takes the newest model for the next candidate, if it is time. A record is saved then, so the host
// still has the model's file.
func (c *Coordinator) nominateCandidate(now time.Time) {
	s, newest := &c.rec.Rollout, c.rec.NewestModel()
	if !s.NominateCandidate(&c.cfg.Rollout, now, newest, c.isInPhase(CoordinatorFinished)) {
		return
	}
	if !s.Candidate.Present() {
		c.report(RolloutEnded{newest.ModelName, newest.ModelName, rollout.Verdict{Result: rollout.First}})
		return
	}
	c.startRolloutTrial(now)
	event := RolloutBegan{Candidate: newest.ModelName, Released: s.Released.ModelName,
		MinDecidingAgents: c.cfg.Rollout.MinDecidingAgents}
	share := s.Announcement(&c.cfg.Rollout)
	for a, m := range c.roster.members {
		if m.isAvailable() && share.Includes(a) {
			event.TrialAgents++
		}
	}
	c.report(event)
}

// handleResiduals takes what an agent says of the candidate, if the candidate is for it.
func (c *Coordinator) handleResiduals(now time.Time, a wire.AgentID, r wire.CandidateResiduals) {
	s := &c.rec.Rollout
	if share := s.Announcement(&c.cfg.Rollout); r.IsFor(share.Candidate) && share.Includes(a) {
		c.rolloutTrial.residualsByAgent[a] = r
		if at := now.Add(judgeEvery); at.Before(c.rolloutTrial.judgeAt) {
			c.rolloutTrial.judgeAt = at
		}
	}
}

// judgeCandidate releases or withdraws the candidate when it has been judged. Agents learn of it with the next
// announcement, which is made at once if no round is under way.
func (c *Coordinator) judgeCandidate(now time.Time) {
	s, k := &c.rec.Rollout, &c.rolloutTrial
	if k.judgeAt.IsZero() || now.Before(k.judgeAt) {
		return
	}
	k.judgeAt = s.CandidateJudgedAt(&c.cfg.Rollout, k.reportsCountedSince)
	v := s.Judge(&c.cfg.Rollout, now, k.reportsCountedSince, k.residualsByAgent)
	if v.Result == "" {
		return
	}
	ended := RolloutEnded{Candidate: s.Candidate.ModelName, Verdict: v}
	s.EndTrial(v.Result)
	ended.Released = s.Released.ModelName
	c.report(ended)
	c.startRolloutTrial(now)
	switch {
	case c.isInPhase(CoordinatorFinished):
		c.reannounce(now, wire.PhaseFinished)
	case c.isInPhase(CoordinatorIdle) && c.announcement.phase == wire.PhaseIdle, c.isInPhase(CoordinatorPaused):
		c.reannounce(now, wire.PhaseIdle)
	}
}

// reannounce repeats an announcement with what has changed in the record.
func (c *Coordinator) reannounce(now time.Time, phase wire.AnnouncementPhase) {
	c.rec.Attempt++
	c.saveJournalRecord(now)
	c.announceRecord(now, phase)
}

var (
	rolloutResults = observe.CounterByLabel("rollouts_total",
		"Rollouts of a model that ended, by result: first (there was none before), widened (released to all agents), "+
			"worse or no_reports (withdrawn).", "result", observe.Strings(rollout.Results()))
	releasedModel = observe.OptionalGauge("rollout_released_version",
		"Version of the model that all agents may predict with.")
	candidateModel = observe.OptionalGauge("rollout_candidate_version",
		"Version of the model that a share of the agents predicts with; 0 if there is none.")
	candidateAgents = observe.OptionalGauge("rollout_agents",
		"Agents of that share that were there when it began.")
	candidateErrorRatio = observe.OptionalGauge("rollout_residuals_ratio",
		"Mean square of the residuals of the last candidate, as a multiple of the released model's, at the median "+
			"agent.")
)

// The names of conditions.
const (
	rolloutCondition      = "rollout"       // the last candidate was withdrawn
	rolloutShareCondition = "rollout share" // too few agents predict with the candidate
)

// RolloutBegan: a share of the agents predicts with a candidate, and all others with the released model. At the start
// of a process the event is repeated as Resumed, also if there is no candidate.
type RolloutBegan struct {
	Candidate, Released wire.ModelName
	TrialAgents         int // agents of the share that are present
	MinDecidingAgents   int // agents that must judge the candidate
	Resumed             bool
}

// Describe implements observe.Event.
func (e RolloutBegan) Describe(d *observe.Description) {
	d.Set(releasedModel, float64(e.Released.Version))
	d.Set(candidateModel, float64(e.Candidate.Version))
	switch {
	case e.Resumed && !e.Candidate.Present():
		d.Log(observe.Info, "agents predict with the released model", "released", e.Released.String())
		return
	case e.Resumed:
		d.Log(observe.Info, "rollout resumed", "model", e.Candidate.String(), "released", e.Released.String())
		return
	}
	d.Set(candidateAgents, float64(e.TrialAgents))
	attributes := []any{"model", e.Candidate.String(), "released", e.Released.String(), "agents", e.TrialAgents}
	if e.TrialAgents >= e.MinDecidingAgents {
		d.Log(observe.Info, "rollout began", attributes...)
		d.Resolve(rolloutShareCondition)
		return
	}
	const remedy = "raise predict.rollout"
	d.Log(observe.Warn, "rollout began with too few agents", append(attributes,
		"predict.devices", e.MinDecidingAgents)...)
	d.Fail(rolloutShareCondition, fmt.Sprintf("model %s is rolled out to %d agents, and is withdrawn unless "+
		"predict.devices (%d) judge it", e.Candidate, e.TrialAgents, e.MinDecidingAgents), remedy)
}

// RolloutEnded: the candidate is released to all agents, or withdrawn.
type RolloutEnded struct {
	Candidate, Released wire.ModelName // Released is the model that is released now
	rollout.Verdict
}

// Describe implements observe.Event.
func (e RolloutEnded) Describe(d *observe.Description) {
	d.Inc(rolloutResults, string(e.Result))
	d.Set(releasedModel, float64(e.Released.Version))
	d.Set(candidateModel, 0)
	d.Resolve(rolloutShareCondition)
	if e.Result == rollout.First {
		d.Log(observe.Info, "first model released to all agents", "model", e.Candidate.String())
		d.Resolve(rolloutCondition)
		return
	}
	d.Set(candidateErrorRatio, e.MedianErrorRatio)
	attributes := []any{"model", e.Candidate.String(), "agents", e.Agents, "judged", e.VotingAgents,
		"residuals_ratio", observe.Rounded(e.MedianErrorRatio)}
	switch e.Result {
	case rollout.Widened:
		d.Log(observe.Info, "model released to all agents", attributes...)
		d.Resolve(rolloutCondition)
	case rollout.Worse:
		d.Log(observe.Error, "model withdrawn: its residuals are larger than those of the released model, or most "+
			"agents refuse it", append(attributes, "released", e.Released.String())...)
		d.Fail(rolloutCondition, fmt.Sprintf("model %s was withdrawn: its residuals are larger than those of the "+
			"released model %s, or most agents refuse it", e.Candidate, e.Released),
			"agents predict with the released model until a newer one is better; `coordinator run --from MODEL` "+
				"releases a model to all agents at once")
	case rollout.NoReports:
		const problem = "too few agents judged it in time"
		d.Log(observe.Warn, "model withdrawn: "+problem, append(attributes, "released", e.Released.String())...)
		d.Fail(rolloutCondition, fmt.Sprintf("model %s was withdrawn: %s", e.Candidate, problem),
			"raise predict.rollout or predict.within, or lower predict.residuals")
	}
}
