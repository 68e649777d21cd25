package round_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// coordinatorHost is a coordinator's host that folds by counting.
type coordinatorHost struct {
	w       *world
	machine *round.Coordinator // nil while it is not running
	life    int
	timer   int
	up      bool

	board     *round.AnnouncementCame // what is to be retained
	before    wire.Digest             // of the announcement before it, in this life
	receiving map[wire.AgentID]wire.Digest

	record  round.Record // on disk
	history []round.Outcome
	spool   map[wire.RoundID]map[wire.AgentID]round.Spooled
}

func newCoordinatorHost(w *world, statistics bool) *coordinatorHost {
	plan := round.Plan{Kind: wire.KindTraining, Task: blob("training"), Base: blob("w0"),
		Exchange: spec.ExchangeParameters, Endless: w.endless}
	if statistics {
		plan.Kind, plan.Task, plan.Base = wire.KindStatistics, blob("statistics"), wire.BlobRef{}
	}
	return &coordinatorHost{
		w: w, record: round.Record{Run: 1, Phase: round.CoordinatorIdle, Plan: plan},
		spool: map[wire.RoundID]map[wire.AgentID]round.Spooled{},
	}
}

// normOf is the norm of an update, which a machine hears when the update is stored, or from its spool after a crash.
func normOf(update wire.Digest) float64 { return 1 + float64(update[0]) }

func blob(s string) wire.BlobRef { return wire.BlobRef{Hash: name(s), Length: 1} }

func (c *coordinatorHost) alive() bool { return c.machine != nil }

// boot makes a machine from what is on disk.
func (c *coordinatorHost) boot() {
	if c.alive() {
		return
	}
	c.life++
	c.receiving = map[wire.AgentID]wire.Digest{}
	c.machine = round.NewCoordinator(c.w.cfg, c.record, c.spool[c.record.Round])
	c.step(round.Start{})
	c.later(c.w.between(0, 10*time.Second), func() { c.cut(true) })
}

// crash ends the process; it comes back by itself.
func (c *coordinatorHost) crash() {
	c.w.log("coordinator", died{})
	c.machine, c.up, c.board, c.before = nil, false, nil, wire.Digest{}
	c.w.after(c.w.between(time.Second, 2*time.Minute), c.boot)
}

type died struct{}

func (c *coordinatorHost) cut(up bool) {
	if !c.alive() || c.up == up {
		return
	}
	c.up = up
	if !up {
		c.step(round.LinkDown{})
		return
	}
	c.step(round.LinkUp{})
	if c.board != nil {
		c.w.publish(c.board)
	}
}

// later does something in this life, if it lasts.
func (c *coordinatorHost) later(d time.Duration, do func()) {
	life := c.life
	c.w.after(d, func() {
		if c.alive() && c.life == life {
			do()
		}
	})
}

func (c *coordinatorHost) step(ev round.Event) {
	c.w.log("coordinator", ev)
	effects := c.machine.Step(c.w.now, ev)
	c.w.checks.drawn(c.machine, effects)
	if err := c.machine.Miscounted(); err != nil {
		c.w.fail("%v", err)
	}
	for _, e := range effects {
		if c.w.odds(c.w.trouble.crash) {
			c.crash() // in the middle
			return
		}
		c.w.log("coordinator", e)
		c.perform(e)
	}
	at, ok := c.machine.Deadline()
	if ok && !at.After(c.w.now) {
		c.w.fail("the coordinator wants a tick in the past")
	}
	if c.timer++; ok {
		timer := c.timer
		c.later(at.Sub(c.w.now), func() {
			if c.timer == timer {
				c.step(round.Tick{})
			}
		})
	}
}

// take takes a message from an agent, if anybody is there.
func (c *coordinatorHost) take(ev round.Event) {
	if c.alive() && c.up {
		c.step(ev)
	}
}

// greeted takes a hello that names the present announcement or the one before, of this life.
func (c *coordinatorHost) greeted(ev round.HelloCame) {
	if x := ev.Hello.Announcement; c.board != nil && (x == c.board.Digest || x == c.before && !x.IsZero()) {
		c.take(ev)
	}
}

// answered takes an answer to an invitation, if it is about what is announced.
func (c *coordinatorHost) answered(announcement wire.Digest, ev round.Event) {
	if c.board != nil && c.board.Digest == announcement {
		c.take(ev)
	}
}

func (c *coordinatorHost) tell(a wire.AgentID, ev round.Event) {
	if agent := c.w.agent(a); c.up {
		c.w.send(func() { agent.hear(ev) })
	}
}

func (c *coordinatorHost) perform(e round.Effect) {
	run := c.record.Run
	switch e := e.(type) {
	case round.Journal:
		c.w.checks.journaled(c.record, e.Record)
		c.record = e.Record
	case round.Announce:
		order := wire.Order{Root: 1, Epoch: 1, Run: run, Round: e.Round, Attempt: e.Announcement.Attempt,
			Phase: e.Announcement.Phase}
		c.w.checks.announced(order, c.record)
		seal := name(fmt.Sprintf("%d.%d-%s/%d", e.Round, order.Attempt, order.Phase, c.life)) // each life seals anew
		if c.board != nil {
			c.before = c.board.Digest
		}
		c.board = &round.AnnouncementCame{Order: order, Digest: seal, Announcement: e.Announcement}
		if c.up {
			c.w.publish(c.board)
		}
	case round.Invite:
		c.tell(e.Agent, round.Invited{Announcement: c.board.Digest, Left: e.Left, Weight: e.Weight, Uploads: e.Uploads,
			Block: e.Block, Peers: e.Peers})
	case round.Mesh:
		c.later(c.w.between(time.Millisecond, 5*time.Second), func() { c.mesh(e) })
	case round.Stand:
		c.tell(e.Agent, round.StandingCame{Announcement: c.board.Digest, Place: e.Place})
	case round.Receive:
		c.receive(e.Agent, e.Update.Payload.Hash)
	case round.Accept:
		c.w.checks.accepts(e)
		c.tell(e.Agent, round.AcceptedCame{Run: run, Round: e.Round, Update: e.Update})
	case round.Refuse:
		c.w.checks.refuses(e, c.record)
		if c.receiving[e.Agent] == e.Update {
			delete(c.receiving, e.Agent)
		}
		c.tell(e.Agent, round.RefusedCame{Run: e.Run, Round: e.Round, Update: e.Update, Reason: e.Reason})
	case round.Fold:
		c.w.checks.folds(e, c.spool[e.Round])
		c.fold(e)
	case round.WriteHistory:
		if n := len(c.history); n == 0 || c.history[n-1] != e.Outcome {
			c.w.checks.remembers(c.history, e.Outcome)
			c.history = append(c.history, e.Outcome)
		}
	case round.Discard:
		delete(c.spool, e.Round)
		clear(c.receiving)
	case round.Report[round.CoordinatorFact]:
		c.w.checks.fact(e.Fact)
	}
}

// mesh puts the agents on a ring.
func (c *coordinatorHost) mesh(e round.Mesh) {
	var edges []round.Edge
	for i := range e.Agents {
		j := (i + 1) % len(e.Agents)
		if a, b := e.Agents[min(i, j)].ID, e.Agents[max(i, j)].ID; a != b && (j > 0 || len(e.Agents) > 2) {
			edges = append(edges, round.Edge{A: a, B: b, Weight: 0.25})
		}
	}
	c.step(round.Meshed{Round: e.Round, Edges: edges})
}

// receive takes a while, and stalls when a link is down.
func (c *coordinatorHost) receive(a wire.AgentID, update wire.Digest) {
	if c.receiving[a] == update {
		return
	}
	c.receiving[a] = update
	r, agent := c.record.Round, c.w.agent(a)
	c.later(c.w.between(200*time.Millisecond, 20*time.Second), func() {
		if c.receiving[a] != update {
			return
		}
		delete(c.receiving, a) // should it have stalled, the next offer begins anew
		if !c.up || !agent.sends(r, update) {
			return
		}
		if c.w.odds(0.02) {
			c.step(round.Rejected{Agent: a, Round: r, Update: update, Reason: wire.RefuseBadHash})
			return
		}
		if c.spool[r] == nil {
			c.spool[r] = map[wire.AgentID]round.Spooled{}
		}
		c.spool[r][a] = round.Spooled{Update: update, Norm: normOf(update)}
		c.later(c.w.between(time.Millisecond, 5*time.Second), func() {
			c.step(round.Stored{Agent: a, Round: r, Update: wire.Update{Payload: wire.Manifest{Hash: update}},
				Norm: normOf(update)})
		})
	})
}

// fold makes the next plan, or fails: always, or never, in the same round.
func (c *coordinatorHost) fold(e round.Fold) {
	next := e.Plan
	if next.Kind == wire.KindStatistics {
		next.Kind, next.Task = wire.KindTraining, blob("training")
	} else {
		next.Version++
	}
	next.Base = blob(fmt.Sprint("w", next.Version))
	folded := round.Folded{Round: e.Round, Next: next}
	if (uint64(e.Round)+c.w.cfg.Seed)%17 == 0 {
		folded = round.Folded{Round: e.Round, Err: errors.New("not a model")}
	}
	c.later(c.w.between(100*time.Millisecond, 5*time.Second), func() { c.step(folded) })
}
