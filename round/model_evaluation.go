package round

import (
	"time"

	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/wire"
)

// evaluationState is what this process has heard of a model that agents evaluate. They tell all of it again after a
// restart.
type evaluationState struct {
	version wire.ModelVersion // 0 = none is evaluated
	// before, agents of the process before may not have come back; zero when it has passed
	helloGraceEndsAt time.Time
	endsAt           time.Time
	reportedAgents   map[wire.AgentID]bool
	resultPool       evaluation.ResultPool
}

// startEvaluation has the announced base model evaluated, if it is one that is to be and has not been. Training goes on
// meanwhile, and rounds do not wait: an agent may report its result as long as another round takes at most. Until then,
// or until all agents that are present have reported, no other evaluation begins: a model that is due meanwhile is not
// evaluated. The last model of a run always is.
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

// handleAgentEvaluation takes what an agent says of the model that is evaluated: its first word.
func (c *CoordinatorMachine) handleAgentEvaluation(a wire.AgentID, m wire.Evaluation) {
	e := &c.evaluationState
	if e.version == 0 || !m.IsForModel(c.record.Run, e.version) || e.reportedAgents[a] {
		return
	}
	e.reportedAgents[a] = true
	e.resultPool.Add(a, m)
}

// endEvaluationIfDue ends an evaluation when its time is over, or when all agents that are there have spoken.
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

// endEvaluation tells what has come of the evaluation under way, if one is.
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
