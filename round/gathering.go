package round

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// gather asks all agents for a hello.
func (c *Coordinator) gather(now time.Time) {
	c.enter(now, CoordinatorGathering)
	c.asked = true
	c.peers = nil
	c.forgetParticipants()
	c.wakeAt = now.Add(c.cfg.Gather.Within)
	c.journal(now)
	c.announce(now, wire.PhaseGathering)
}

// gathered opens the round when enough agents are there: at once with the
// target, at the end of the window with the minimum. While the broker is out
// of reach the window stays open.
func (c *Coordinator) gathered(now time.Time, due bool) {
	there := c.roster.there // those that sit out come back early, if too few others are there
	if !now.Before(c.retryAt) {
		c.retryAt = time.Time{}
	}
	switch target := c.enough(); {
	case !c.linkUp:
		if due {
			c.wakeAt = now.Add(c.cfg.Gather.Within)
		}
	case now.Before(c.retryAt):
		if due {
			c.wakeAt = c.retryAt
		}
	case (target > 0 && there >= target || due && there >= c.fewest()) && c.mayOpen(now):
		c.open(now)
	case due && c.announcementPublishedAt.IsZero(): // the window begins when agents can answer
		c.wakeAt = now.Add(c.cfg.Gather.Within)
	case due && c.waits(now):
	case due:
		c.report(GatheringExtended{Agents: there, Minimum: c.fewest()})
		c.askMore(now)
		c.rec.Attempt++
		c.gather(now)
	}
}

// fewest returns how many agents a window must end with: in the first round of a run gather.first, if that is more than
// gather.minimum.
func (c *Coordinator) fewest() int {
	if c.rec.Last == nil && c.rec.Plan.Version == 0 {
		return max(c.cfg.Gather.Minimum, c.cfg.Gather.First)
	}
	return c.cfg.Gather.Minimum
}

// next goes on to the next round: straight to its opening while enough agents
// are known to be there. A process that took up a round knows only those that
// happened to say hello since, so it asks first.
func (c *Coordinator) next(now time.Time) {
	if why := c.over(now); why != "" {
		c.finish(now, why)
		return
	}
	if c.rests(now) || c.waits(now) {
		return
	}
	c.advance()
	c.ask(now)
	if !c.cfg.Gather.Respond.On() && c.linkUp && c.asked && c.roster.there >= c.cfg.Gather.Minimum {
		c.open(now)
	} else {
		c.gather(now)
	}
}

// hello takes note of the agent, and answers whatever the phase is.
func (c *Coordinator) hello(now time.Time, e HelloCame) {
	if q := e.Hello.Asks; q.Round > 0 {
		c.do(Settle{e.Agent, q.Round, q.Update, c.rec.fate(q.Round, e.Agent, q.Update)})
	}
	if e.Hello.Unfit == 0 && e.Hello.Samples == 0 { // it has no task yet: what was known of its data stays
		c.answerHello(now, &e)
		return
	}
	c.residuals(now, e.Agent, e.Hello.Residuals)
	c.evaluated(e.Agent, e.Hello.Evaluation)
	c.edgesSeen(e.Agent, &e.Hello.Seen)
	news, out, misfit := false, c.sitsOut(e.Agent), ""
	if u := &e.Hello.Misfit; e.Hello.Unfit != 0 && *u != (wire.Misfit{}) {
		misfit = u.Column + " " + u.Reason
	}
	m := c.roster.change(e.Agent, func(m *member) {
		fresh, tells := m.unused(&e)
		usedIn := m.usedIn
		if m.boot != e.Boot {
			usedIn = 0
		}
		news = !m.present || m.boot != e.Boot || m.unfit != e.Hello.Unfit || m.misfit != misfit
		*m = member{
			boot: e.Boot, present: true, sitsOut: out, unfit: e.Hello.Unfit, misfit: misfit,
			newRows: fresh, tells: tells, usedIn: usedIn,
			samples: e.Hello.Samples, peerKey: e.Hello.PeerKey, clips: e.Hello.Clips,
			place: e.Hello.Location, neighbors: e.Hello.Neighbors, length: m.length, window: m.window,
		}
	})
	c.count(m, e.Hello.Respond)
	switch {
	case news && m.unfit != 0:
		c.rec.Stop.Left(e.Agent)
		c.report(AgentUnfit{e.Agent, m.unfit, e.Hello.Misfit, c.roster.drawn})
	case news:
		if c.cfg.Stop.On() {
			c.rec.Stop.Joined(e.Agent)
		}
		c.report(AgentCounted{e.Agent, m.samples, c.roster.drawn})
	}
	c.answerHello(now, &e)
}

func (c *Coordinator) answerHello(now time.Time, e *HelloCame) {
	if p := c.peers[e.Agent]; p != nil && (c.in(CoordinatorCollecting) || p.state == peerAccepted) {
		c.helloOfPeer(now, p, e.Hello.Unfit)
		return
	}
	place := wire.PlaceNotSelected
	if c.in(CoordinatorGathering) && e.Hello.Unfit == 0 && e.Hello.Samples > 0 {
		place = wire.PlaceCounted
	}
	c.stand(e.Agent, place)
}

// stand answers an agent, once the announcement that the answer names is out. A hello from before comes again.
func (c *Coordinator) stand(a wire.AgentID, place wire.Place) {
	if c.announcementPublished {
		e := Stand{Agent: a, Place: place}
		if m := c.roster.members[a]; m != nil {
			e.Samples = m.samples
		}
		c.do(e)
	}
}

// helloOfPeer answers a participant that has restarted or lost its thread.
func (c *Coordinator) helloOfPeer(now time.Time, p *peer, unfit wire.DeclineReason) {
	switch {
	case p.state == peerAccepted:
		c.do(Accept{p.Agent, c.rec.Round, p.Accepted})
	case p.state == peerOut:
		c.stand(p.Agent, wire.PlaceNotSelected)
	case unfit != 0:
		c.stand(p.Agent, wire.PlaceNotSelected)
		c.dropOut(now, p, unfit)
	default:
		c.inviteNow(now, p)
	}
}

// presence believes a leave and nothing else: an agent that is there says hello.
func (c *Coordinator) presence(now time.Time, e PresenceCame) {
	if m := c.roster.members[e.Agent]; m != nil && m.present && e.State != wire.StateOnline {
		c.roster.change(e.Agent, func(m *member) { m.present = false })
		why := LeftLost
		if e.State == wire.StateOffline {
			why = LeftOffline
		}
		c.report(AgentLeft{e.Agent, why, c.roster.drawn})
		if p := c.peers[e.Agent]; p != nil && c.in(CoordinatorCollecting) && p.state < peerAccepted && p.Times > 0 &&
			c.mixes() {
			c.redraw(now, p)
			c.settle(now)
		}
	}
}
