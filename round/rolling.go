package round

import (
	"time"

	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/wire"
)

// rolling is what this process knows of the candidate. Agents tell all of it again after a restart.
type rolling struct {
	from    time.Time // since then agents are heard
	heard   map[wire.AgentID]wire.Residuals
	judgeAt time.Time // zero without a candidate
}

// judgeEvery is how often a candidate is judged at most, which takes time for each agent that was heard.
const judgeEvery = time.Minute

// beginRolling goes on with the candidate of the record, if there is one.
func (c *Coordinator) beginRolling(now time.Time) {
	c.rolling = rolling{from: now, heard: map[wire.AgentID]wire.Residuals{}}
	if c.rec.Rollout.Candidate.Present() {
		c.rolling.judgeAt = now.Add(rollout.Settle)
	}
}

// nominate takes the newest model for the next candidate, if it is time. A record is saved then, so the host still has
// the model's file.
func (c *Coordinator) nominate(now time.Time) {
	s, newest := &c.rec.Rollout, c.rec.Newest()
	if !s.Next(&c.cfg.Rollout, now, newest, c.in(CoordinatorFinished)) {
		return
	}
	if !s.Candidate.Present() {
		c.report(RolloutEnded{newest.ModelName, newest.ModelName, rollout.Verdict{Result: rollout.First}})
		return
	}
	c.beginRolling(now)
	fact := RolloutBegan{Candidate: newest.ModelName, Released: s.Released.ModelName, Least: c.cfg.Rollout.Devices}
	share := s.Announced(&c.cfg.Rollout)
	for a, m := range c.roster.members {
		if m.isThere() && share.Includes(a) {
			fact.Agents++
		}
	}
	c.report(fact)
}

// residuals takes what an agent says of the candidate, if the candidate is for it.
func (c *Coordinator) residuals(now time.Time, a wire.AgentID, r wire.Residuals) {
	s := &c.rec.Rollout
	if share := s.Announced(&c.cfg.Rollout); r.Of(share.Candidate) && share.Includes(a) {
		c.rolling.heard[a] = r
		if at := now.Add(judgeEvery); at.Before(c.rolling.judgeAt) {
			c.rolling.judgeAt = at
		}
	}
}

// roll releases or withdraws the candidate when it has been judged. Agents learn of it with the next announcement,
// which is made at once if no round is under way.
func (c *Coordinator) roll(now time.Time) {
	s, k := &c.rec.Rollout, &c.rolling
	if k.judgeAt.IsZero() || now.Before(k.judgeAt) {
		return
	}
	k.judgeAt = s.Deadline(&c.cfg.Rollout, k.from)
	v := s.Judge(&c.cfg.Rollout, now, k.from, k.heard)
	if v.Result == "" {
		return
	}
	ended := RolloutEnded{Candidate: s.Candidate.ModelName, Verdict: v}
	s.End(v.Result)
	ended.Released = s.Released.ModelName
	c.report(ended)
	c.beginRolling(now)
	switch {
	case c.in(CoordinatorFinished):
		c.announceAnew(now, wire.PhaseFinished)
	case c.in(CoordinatorIdle) && c.phase == wire.PhaseIdle, c.in(CoordinatorPaused):
		c.announceAnew(now, wire.PhaseIdle)
	}
}

// announceAnew repeats an announcement with what has changed in the record.
func (c *Coordinator) announceAnew(now time.Time, phase wire.Phase) {
	c.rec.Attempt++
	c.journal(now)
	c.announce(now, phase)
}
