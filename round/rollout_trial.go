package round

import (
	"time"

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
	fact := RolloutBegan{Candidate: newest.ModelName, Released: s.Released.ModelName,
		MinDecidingAgents: c.cfg.Rollout.MinDecidingAgents}
	share := s.Announcement(&c.cfg.Rollout)
	for a, m := range c.roster.members {
		if m.isAvailable() && share.Includes(a) {
			fact.TrialAgents++
		}
	}
	c.report(fact)
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
	case c.isInPhase(CoordinatorIdle) && c.announcedPhase == wire.PhaseIdle, c.isInPhase(CoordinatorPaused):
		c.reannounce(now, wire.PhaseIdle)
	}
}

// reannounce repeats an announcement with what has changed in the record.
func (c *Coordinator) reannounce(now time.Time, phase wire.AnnouncementPhase) {
	c.rec.Attempt++
	c.saveJournalRecord(now)
	c.announceRecord(now, phase)
}
