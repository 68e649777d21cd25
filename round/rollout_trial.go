package round

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/wire"
)

// rolloutTrial is the trial of the candidate, the newest model that some agents try for predictions. The trial is not
// persisted, since agents repeat their reports after a restart.
type rolloutTrial struct {
	reportsCountedSince time.Time // time since which reports are collected
	residualsByAgent    map[wire.AgentID]wire.CandidateResiduals
	nextJudgingAt       time.Time // time of the next judgement; zero without a candidate
}

// judgingInterval is the minimum time between two judgements of a candidate. It limits the cost, because each judgement
// examines all reports.
const judgingInterval = time.Minute

// startRolloutTrial starts the trial of the candidate in the journal record, or clears the trial if there is no
// candidate.
func (c *CoordinatorMachine) startRolloutTrial(now time.Time) {
	c.rolloutTrial = rolloutTrial{reportsCountedSince: now,
		residualsByAgent: map[wire.AgentID]wire.CandidateResiduals{}}
	if c.record.Rollout.Candidate.IsSet() {
		c.rolloutTrial.nextJudgingAt = now.Add(rollout.MinTrialDuration)
	}
}

// nominateCandidate makes the newest model the next candidate if one is due. It is called when a record is saved, while
// the host still has the model's file.
func (c *CoordinatorMachine) nominateCandidate(now time.Time) {
	s, newest := &c.record.Rollout, c.record.NewestModel()
	if !s.NominateCandidate(&c.cfg.Rollout, now, newest, c.isInPhase(CoordinatorFinished)) {
		return
	}
	if !s.Candidate.IsSet() {
		c.reportEvent(RolloutEnded{newest.ModelRef, newest.ModelRef,
			rollout.Verdict{Result: rollout.FirstModelReleased}})
		return
	}
	c.startRolloutTrial(now)
	event := RolloutBegan{Candidate: newest.ModelRef, Released: s.Released.ModelRef,
		MinDecidingAgents: c.cfg.Rollout.MinDecidingAgents}
	share := s.AnnouncedRollout(&c.cfg.Rollout)
	for a, m := range c.roster.memberByAgent {
		if m.isPresentAndFit() && share.OffersCandidateTo(a) {
			event.TrialAgents++
		}
	}
	c.reportEvent(event)
}

// handleCandidateResiduals stores an agent's report about the candidate if the agent belongs to the share that was
// offered the candidate.
func (c *CoordinatorMachine) handleCandidateResiduals(now time.Time, a wire.AgentID, r wire.CandidateResiduals) {
	s := &c.record.Rollout
	if share := s.AnnouncedRollout(&c.cfg.Rollout); r.IsForModel(share.CandidateModel) && share.OffersCandidateTo(a) {
		c.rolloutTrial.residualsByAgent[a] = r
		if at := now.Add(judgingInterval); at.Before(c.rolloutTrial.nextJudgingAt) {
			c.rolloutTrial.nextJudgingAt = at
		}
	}
}

// judgeCandidate releases or withdraws the candidate once it can be judged. Agents learn the result from the next
// announcement, which is published at once if no round is in progress.
func (c *CoordinatorMachine) judgeCandidate(now time.Time) {
	s, k := &c.record.Rollout, &c.rolloutTrial
	if k.nextJudgingAt.IsZero() || now.Before(k.nextJudgingAt) {
		return
	}
	k.nextJudgingAt = s.JudgingDeadline(&c.cfg.Rollout, k.reportsCountedSince)
	v := s.JudgeCandidate(&c.cfg.Rollout, now, k.reportsCountedSince, k.residualsByAgent)
	if v.Result == "" {
		return
	}
	ended := RolloutEnded{Candidate: s.Candidate.ModelRef, Verdict: v}
	s.EndTrial(v.Result)
	ended.Released = s.Released.ModelRef
	c.reportEvent(ended)
	c.startRolloutTrial(now)
	switch {
	case c.isInPhase(CoordinatorFinished):
		c.repeatAnnouncement(now, wire.PhaseFinished)
	case c.isInPhase(CoordinatorIdle) && c.announcement.phase == wire.PhaseIdle, c.isInPhase(CoordinatorPaused):
		c.repeatAnnouncement(now, wire.PhaseIdle)
	}
}

// repeatAnnouncement publishes the announcement again after the journal record has changed.
func (c *CoordinatorMachine) repeatAnnouncement(now time.Time, phase wire.AnnouncementPhase) {
	c.record.Attempt++
	c.saveJournalRecord(now)
	c.announcePhase(now, phase)
}

var (
	rolloutResultsMetric = observe.CounterByLabel("rollouts_total",
		"Completed rollouts of models, by result: first (no earlier model), widened (released to all agents), worse "+
			"(withdrawn), no_reports (withdrawn: too few reports).", "result",
		observe.NamesAsStrings(rollout.AllResults()))
	releasedVersionMetric = observe.OptionalGauge("rollout_released_version",
		"Version of the model released to all agents for predictions.")
	candidateVersionMetric = observe.OptionalGauge("rollout_candidate_version",
		"Version of the model that is being tested on a share of the agents, or 0 if there is none.")
	trialAgentsMetric = observe.OptionalGauge("rollout_agents",
		"Agents that received the model under test and were present when its rollout began.")
	candidateErrorRatioMetric = observe.OptionalGauge("rollout_residuals_ratio",
		"Ratio of the mean squared residuals of the last model under test and of the released model, at the median "+
			"agent.")
)

// Names of conditions that concern a rollout.
const (
	rolloutCondition      = "rollout"       // raised when the last candidate was withdrawn
	rolloutShareCondition = "rollout share" // raised when too few agents predict with the candidate
)

// The names of the status values of type *RolloutStatus.
const (
	RolloutValue = "rollout" // value describes the current rollout and contains no outcome
	// value describes the state after the last rollout that ended in this process.
	RolloutOutcomeValue = "rollout outcome"
)

// RolloutStatus is the state of the rollout of models for a status display. Models are named RUN/VERSION.
type RolloutStatus struct {
	ReleasedModel string `json:"released"`
	Candidate     string `json:"candidate,omitempty"`
	// number of agents that try the candidate and were present at the start of the trial
	CandidateAgents    int            `json:"agents,omitempty"`
	LastRolloutOutcome rollout.Result `json:"last,omitempty"`
	LastRolloutModel   string         `json:"of,omitempty"`
}

// RolloutBegan is emitted when a share of the agents begins to predict with a candidate. It is emitted again with
// IsResumed when the coordinator starts, even without a candidate.
type RolloutBegan struct {
	Candidate, Released wire.ModelRef
	TrialAgents         int // present agents that get the candidate
	MinDecidingAgents   int // minimum number of agents that must judge the candidate
	IsResumed           bool
}

// Describe implements observe.Event.
func (e RolloutBegan) Describe(d *observe.EventDescription) {
	d.SetGauge(releasedVersionMetric, float64(e.Released.Version))
	d.SetGauge(candidateVersionMetric, float64(e.Candidate.Version))
	running := &RolloutStatus{ReleasedModel: e.Released.String(), CandidateAgents: e.TrialAgents}
	if e.Candidate.IsSet() {
		running.Candidate = e.Candidate.String()
	}
	d.ShowStatusValue(RolloutValue, running)
	switch {
	case e.IsResumed && !e.Candidate.IsSet():
		d.Log(observe.Info, "agents predict with the released model", "released", e.Released.String())
		return
	case e.IsResumed:
		d.Log(observe.Info, "rollout resumed", "model", e.Candidate.String(), "released", e.Released.String())
		return
	}
	d.SetGauge(trialAgentsMetric, float64(e.TrialAgents))
	attributes := []any{"model", e.Candidate.String(), "released", e.Released.String(), "agents", e.TrialAgents}
	if e.TrialAgents >= e.MinDecidingAgents {
		d.Log(observe.Info, "rollout started", attributes...)
		d.ResolveCondition(rolloutShareCondition)
		return
	}
	const remedy = "increase predict.rollout"
	d.Log(observe.Warn, "rollout of a model started on too few agents to decide about its release", append(attributes,
		"predict.devices", e.MinDecidingAgents)...)
	d.RaiseCondition(rolloutShareCondition, fmt.Sprintf("model %s is rolled out to %d agents, but its release "+
		"requires reports from %d agents (predict.devices)", e.Candidate, e.TrialAgents, e.MinDecidingAgents), remedy)
}

// RolloutEnded is emitted when the candidate is either released to all agents or withdrawn.
type RolloutEnded struct {
	Candidate, Released wire.ModelRef // Released is the model that agents use after this event
	rollout.Verdict
}

// Describe implements observe.Event.
func (e RolloutEnded) Describe(d *observe.EventDescription) {
	d.IncCounter(rolloutResultsMetric, string(e.Result))
	d.SetGauge(releasedVersionMetric, float64(e.Released.Version))
	d.SetGauge(candidateVersionMetric, 0)
	d.ShowStatusValue(RolloutValue, nil)
	d.ShowStatusValue(RolloutOutcomeValue, &RolloutStatus{ReleasedModel: e.Released.String(),
		LastRolloutOutcome: e.Result, LastRolloutModel: e.Candidate.String()})
	d.ResolveCondition(rolloutShareCondition)
	if e.Result == rollout.FirstModelReleased {
		d.Log(observe.Info, "first model released to all agents", "model", e.Candidate.String())
		d.ResolveCondition(rolloutCondition)
		return
	}
	d.SetGauge(candidateErrorRatioMetric, e.MedianErrorRatio)
	attributes := []any{"model", e.Candidate.String(), "agents", e.ReportingAgents, "judged", e.VotingAgents,
		"residuals_ratio", observe.RoundToFourDigits(e.MedianErrorRatio)}
	switch e.Result {
	case rollout.CandidateReleased:
		d.Log(observe.Info, "model released to all agents", attributes...)
		d.ResolveCondition(rolloutCondition)
	case rollout.CandidateWorse:
		d.Log(observe.Error,
			"model withdrawn: its prediction errors exceed those of the released model, or most agents refused it",
			append(attributes, "released", e.Released.String())...)
		d.RaiseCondition(rolloutCondition,
			fmt.Sprintf("model %s was withdrawn: its prediction errors are larger than those of the released model "+
				"%s, or most agents refused it", e.Candidate, e.Released),
			"no action is required: agents continue to predict with the released model; to release a model to all "+
				"agents immediately, use `coordinator run --from MODEL`")
	case rollout.TooFewReports:
		const problem = "too few agents reported their prediction errors in time"
		d.Log(observe.Warn, "model withdrawn: "+problem, append(attributes, "released",
			e.Released.String())...)
		d.RaiseCondition(rolloutCondition, fmt.Sprintf("model %s was withdrawn: %s", e.Candidate, problem),
			"increase predict.rollout or predict.within, or reduce predict.residuals")
	}
}
