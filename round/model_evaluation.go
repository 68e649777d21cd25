package round

import (
	"time"

	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/wire"
)

// evaluationState is the state of the agents' evaluation of a model. The coordinator does not save it to disk, since
// agents send their results again after a restart.
type evaluationState struct {
	version wire.ModelVersion // version of the model that agents are evaluating; 0 means none
	// time until which agents that were known before a restart may still send a hello message
	helloGraceEndsAt time.Time
	endsAt           time.Time
	reportedAgents   map[wire.AgentID]bool
	resultPool       evaluation.ResultPool
}

// startEvaluation starts the evaluation of the announced base model if an evaluation is due, and returns the minimum
// number of held-out rows for an agent to report. The evaluation ends when all present agents have reported, or after
// the duration of a round. A model that becomes due during an evaluation is skipped, except the last model of a run.
func (c *CoordinatorMachine) startEvaluation(now time.Time, phase wire.AnnouncementPhase) (rows uint32) {
	p, every := &c.record.Plan, wire.ModelVersion(c.cfg.Evaluation.VersionInterval)
	if base := p.trainingBaseModel(); every == 0 || !base.IsSet() || p.BaseModelVersion == 0 {
		return 0
	}
	e := &c.evaluationState
	last := phase == wire.PhaseFinished
	open := e.version != 0 && now.Before(e.endsAt) && !c.allAgentsEvaluated() && !last
	if due := p.BaseModelVersion%every == 0 || last; due && !open && p.BaseModelVersion != e.version &&
		c.record.LastEvaluatedVersion < p.BaseModelVersion {
		c.endEvaluation(now)
		*e = evaluationState{version: p.BaseModelVersion, helloGraceEndsAt: c.helloGraceEndsAt,
			endsAt:         now.Add(c.cfg.RoundTimeout),
			reportedAgents: map[wire.AgentID]bool{}}
	}
	if e.version != p.BaseModelVersion {
		return 0
	}
	return uint32(c.cfg.Evaluation.MinRows)
}

// handleAgentEvaluation stores the first evaluation result that an agent sends for the model under evaluation.
func (c *CoordinatorMachine) handleAgentEvaluation(a wire.AgentID, m wire.Evaluation) {
	e := &c.evaluationState
	if e.version == 0 || !m.IsForModel(c.record.Run, e.version) || e.reportedAgents[a] {
		return
	}
	e.reportedAgents[a] = true
	e.resultPool.Add(a, m)
}

// endEvaluationIfDue ends the evaluation if its deadline has passed or all present agents have reported.
func (c *CoordinatorMachine) endEvaluationIfDue(now time.Time) {
	e := &c.evaluationState
	if e.version == 0 {
		return
	}
	if !now.Before(e.helloGraceEndsAt) {
		e.helloGraceEndsAt = time.Time{}
	}
	if !now.Before(e.endsAt) || e.helloGraceEndsAt.IsZero() && c.allAgentsEvaluated() {
		c.endEvaluation(now)
	}
}

func (c *CoordinatorMachine) allAgentsEvaluated() bool {
	heard := c.evaluationState.reportedAgents
	if len(heard) == 0 || len(heard) < c.roster.presentAndFitMembers {
		return false
	}
	for id, m := range c.roster.memberByAgent {
		if m.isPresentAndFit() && !heard[id] {
			return false
		}
	}
	return true
}

// endEvaluation ends the current evaluation and reports its result. It does nothing if no evaluation is in progress.
func (c *CoordinatorMachine) endEvaluation(now time.Time) {
	e := &c.evaluationState
	if e.version == 0 {
		return
	}
	c.record.LastEvaluatedVersion = e.version
	present := max(c.roster.presentAndFitMembers, len(e.reportedAgents))
	done := ReportEvaluation{Run: c.record.Run, Round: c.record.Round, Version: e.version, ResultPool: e.resultPool,
		RespondingAgents: len(e.reportedAgents),
		PresentAgents:    present, EndedAt: now.UTC().Truncate(time.Millisecond)}
	if done.TooFewAgents = len(e.reportedAgents) < min(c.cfg.Evaluation.MinAgents, present); done.TooFewAgents {
		done.ResultPool = evaluation.ResultPool{}
	}
	c.emitEffect(done)
	*e = evaluationState{}
}
