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
	returnGraceEndsAt time.Time
	endsAt            time.Time
	reportedAgents    map[wire.AgentID]bool
	pool              evaluation.ResultPool
}

// startEvaluation has the announced base model evaluated, if it is one that is to be and has not been. Training goes on
// meanwhile, and rounds do not wait: an agent may report its result as long as another round takes at most. Until then,
// or until all agents that are present have reported, no other evaluation begins: a model that is due meanwhile is not
// evaluated. The last model of a run always is.
func (c *Coordinator) startEvaluation(now time.Time, phase wire.AnnouncementPhase) (rows uint32) {
	p, every := &c.rec.Plan, wire.ModelVersion(c.cfg.Evaluation.EveryVersions)
	if base := p.trainingBase(); every == 0 || !base.Present() || p.Version == 0 {
		return 0
	}
	e := &c.evaluationState
	last := phase == wire.PhaseFinished
	open := e.version != 0 && now.Before(e.endsAt) && !c.allEvaluated() && !last
	if due := p.Version%every == 0 || last; due && !open && p.Version != e.version && c.rec.Evaluated < p.Version {
		c.endEvaluation(now)
		*e = evaluationState{version: p.Version, returnGraceEndsAt: c.helloGraceEndsAt, endsAt: now.Add(c.cfg.Deadline),
			reportedAgents: map[wire.AgentID]bool{}}
	}
	if e.version != p.Version {
		return 0
	}
	return uint32(c.cfg.Evaluation.MinRows)
}

// handleEvaluation takes what an agent says of the model that is evaluated: its first word.
func (c *Coordinator) handleEvaluation(a wire.AgentID, m wire.Evaluation) {
	e := &c.evaluationState
	if e.version == 0 || !m.IsFor(c.rec.Run, e.version) || e.reportedAgents[a] {
		return
	}
	e.reportedAgents[a] = true
	e.pool.Add(a, m)
}

// tickEvaluation ends an evaluation when its time is over, or when all agents that are there have spoken.
func (c *Coordinator) tickEvaluation(now time.Time) {
	e := &c.evaluationState
	if e.version == 0 {
		return
	}
	if !now.Before(e.returnGraceEndsAt) {
		e.returnGraceEndsAt = time.Time{}
	}
	if !now.Before(e.endsAt) || e.returnGraceEndsAt.IsZero() && c.allEvaluated() {
		c.endEvaluation(now)
	}
}

func (c *Coordinator) allEvaluated() bool {
	heard := c.evaluationState.reportedAgents
	if len(heard) == 0 || len(heard) < c.roster.availableMembers {
		return false
	}
	for id, m := range c.roster.members {
		if m.isAvailable() && !heard[id] {
			return false
		}
	}
	return true
}

// endEvaluation tells what has come of the evaluation under way, if one is.
func (c *Coordinator) endEvaluation(now time.Time) {
	e := &c.evaluationState
	if e.version == 0 {
		return
	}
	c.rec.Evaluated = e.version
	present := max(c.roster.availableMembers, len(e.reportedAgents))
	done := ReportEvaluation{Run: c.rec.Run, Round: c.rec.Round, Version: e.version, Pool: e.pool,
		RespondingAgents: len(e.reportedAgents),
		PresentAgents:    present, At: now.UTC().Truncate(time.Millisecond)}
	if done.TooFewAgents = len(e.reportedAgents) < min(c.cfg.Evaluation.MinAgents, present); done.TooFewAgents {
		done.Pool = evaluation.ResultPool{}
	}
	c.emit(done)
	*e = evaluationState{}
}
