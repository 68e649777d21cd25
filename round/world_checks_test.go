package round_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// checks holds what must never be otherwise, whatever the faults.
type checks struct {
	world        *world
	order        wire.Order // of the last announcement
	participants map[wire.RoundID]string
	accepted     map[wire.RoundID]map[wire.AgentID]wire.Digest // said so
	folded       map[wire.RoundID]string
	in           map[wire.RoundID]map[wire.AgentID]wire.Digest // the folds
	closedBy     map[wire.ModelVersion]wire.RoundID
	maker        map[wire.Digest]string // agent and round of an update
	ends         map[string]int         // of work, by agent, life and round

	closed, abandoned     int
	replaced              int // journals of rounds with an uploader in the place of another
	lastOpened            round.RoundOpened
	openedAt, abandonedAt time.Time
}

func put[K, L comparable, V any](m *map[K]map[L]V, k K, l L, v V) {
	if *m == nil {
		*m = map[K]map[L]V{}
	}
	if (*m)[k] == nil {
		(*m)[k] = map[L]V{}
	}
	(*m)[k][l] = v
}

// announced: an announcement is of what is on disk, and newer than all before.
func (c *checks) announced(o wire.Order, rec round.Record) {
	if o.Compare(c.order) <= 0 {
		c.world.fail("announced %s after %s", o, c.order)
	}
	c.order = o
	if rec.Round != o.Round || rec.Attempt != o.Attempt {
		c.world.fail("announced %s, on disk is round %d attempt %d", o, rec.Round, rec.Attempt)
	}
}

// journaled: a round keeps its participants, and every version is one round's.
func (c *checks) journaled(before, rec round.Record) {
	if c.participants == nil {
		c.participants, c.closedBy = map[wire.RoundID]string{}, map[wire.ModelVersion]wire.RoundID{}
	}
	if rec.Phase == round.CoordinatorCollecting || rec.Phase == round.CoordinatorClosing {
		all := ""
		for _, p := range rec.Participants {
			times := p.Times
			if c.world.cfg.Algorithm == spec.FedDec && rec.Plan.Kind == wire.KindTraining {
				times = 0 // moves on from those that will not send
			}
			all += fmt.Sprintf("%s*%d@%g ", p.Agent, times, p.Weight)
		}
		all += fmt.Sprint(rec.Edges)
		c.draws(rec)
		if old, known := c.participants[rec.Round]; known && old != all {
			c.world.fail("round %d has participants %s, had %s", rec.Round, all, old)
		}
		c.participants[rec.Round] = all
	}
	switch grown := rec.Plan.Version - before.Plan.Version; {
	case grown == 1:
		if r, known := c.closedBy[rec.Plan.Version]; known {
			c.world.fail("version %d came from round %d and again from %d", rec.Plan.Version, r, before.Round)
		}
		c.closedBy[rec.Plan.Version] = before.Round
	case grown != 0:
		c.world.fail("version %d after %d", rec.Plan.Version, before.Plan.Version)
	}
}

// drawn: the participants of a round's first attempt are those of the seed.
func (c *checks) drawn(m *round.Coordinator, effects []round.Effect) {
	for _, e := range effects {
		r, ok := e.(round.Report[round.CoordinatorFact])
		if !ok {
			continue
		}
		opened, ok := r.Fact.(round.RoundOpened)
		if _, again := c.participants[opened.Round]; !ok || again {
			continue
		}
		if !c.world.coord.up {
			c.world.fail("round %d is drawn while nobody can be heard", opened.Round)
		}
		cfg, agents := c.world.cfg, m.Eligible()
		rec := m.Record()
		mixes := cfg.Algorithm == spec.FedDec && opened.Kind == wire.KindTraining
		here := slices.Clone(agents)
		if mixes { // some may have left while the edges were made, or since
			agents = nil
			for _, p := range rec.Participants {
				agents = append(agents, p.Agent)
			}
		}
		if mixes && len(agents) > 1 && len(rec.Edges) == 0 {
			c.world.fail("round %d is opened without its edges", opened.Round)
		}
		rng := rand.New(rand.NewPCG(cfg.Seed, uint64(opened.Round)))
		slices.Reverse(agents)
		var want []round.Draw
		switch {
		case mixes && rec.Block < opened.Round: // of those in the block that are here
			want = drawnOf(rec.Participants, here, cfg.Participants, rng)
		case opened.Kind == wire.KindStatistics:
			want = round.SampleWithoutReplacement(agents, len(agents), rng)
		case cfg.Sampling == spec.WithReplacement:
			want = round.SampleWithReplacement(agents, cfg.Participants, rng)
		default:
			want = round.SampleWithoutReplacement(agents, cfg.Participants+cfg.OverSelect, rng)
		}
		var got []round.Draw
		for _, p := range rec.Participants {
			if p.Times == 0 {
				continue // it only trains and mixes
			}
			got = append(got, round.Draw{Agent: p.Agent, Times: p.Times})
		}
		if !slices.Equal(got, want) {
			c.world.fail("round %d drew %v, the seed says %v", opened.Round, got, want)
		}
	}
}

// drawnOf draws of the participants, again where one is not here.
func drawnOf(all []round.Participant, here []wire.AgentID, l int, rng *rand.Rand) (draws []round.Draw) {
	times := make([]int, len(all))
	for drawn := 0; drawn < l; {
		if i := rng.IntN(len(all)); slices.Contains(here, all[i].Agent) {
			times[i]++
			drawn++
		}
	}
	for i, n := range times {
		if n > 0 {
			draws = append(draws, round.Draw{Agent: all[i].Agent, Times: n})
		}
	}
	return draws
}

// draws: where agents mix the draws add up to L, and no accepted one loses any.
func (c *checks) draws(rec round.Record) {
	if c.world.cfg.Algorithm != spec.FedDec || rec.Plan.Kind != wire.KindTraining {
		return
	}
	sum := 0
	for _, p := range rec.Participants {
		if sum += p.Times; p.Times == 0 && !p.Accepted.IsZero() {
			c.world.fail("round %d: %s is accepted and not drawn", rec.Round, p.Agent)
		}
	}
	if sum != c.world.cfg.Participants {
		c.world.fail("round %d: %d draws, want %d", rec.Round, sum, c.world.cfg.Participants)
	}
	if rec.Drawn > c.world.cfg.Participants {
		c.replaced++
	}
}

// made: each update is one agent's, for one round.
func (c *checks) made(a wire.AgentID, t round.Trained) {
	if c.maker == nil {
		c.maker = map[wire.Digest]string{}
	}
	c.maker[t.Update] = fmt.Sprint(a, t.Round)
}

// accepts: one update of an agent in a round, and only of the set once it is fixed.
func (c *checks) accepts(e round.Accept) {
	if old, known := c.accepted[e.Round][e.Agent]; known && old != e.Update {
		c.world.fail("round %d accepted %s of %s after %s", e.Round, nameOf(e.Update), e.Agent, nameOf(old))
	}
	if set, fixed := c.in[e.Round]; fixed && set[e.Agent] != e.Update {
		c.world.fail("round %d accepted %s of %s, which is not folded", e.Round, nameOf(e.Update), e.Agent)
	}
	if c.maker[e.Update] != fmt.Sprint(e.Agent, e.Round) {
		c.world.fail("round %d accepted %s of %s", e.Round, nameOf(e.Update), e.Agent)
	}
	put(&c.accepted, e.Round, e.Agent, e.Update)
}

// refuses: what was accepted is not refused while its round lasts.
func (c *checks) refuses(e round.Refuse, rec round.Record) {
	if rec.Round == e.Round && rec.Phase != round.CoordinatorIdle && rec.Phase != round.CoordinatorFinished &&
		c.accepted[e.Round][e.Agent] == e.Update {
		c.world.fail("round %d refused %s of %s as %s after accepting it", e.Round, nameOf(e.Update), e.Agent, e.Reason)
	}
}

// folds: what is folded is on disk; what was accepted is folded, once, and the
// same again after a crash.
func (c *checks) folds(e round.Fold, spool map[wire.AgentID]round.Spooled) {
	if c.folded == nil {
		c.folded = map[wire.RoundID]string{}
	}
	all, sum := fmt.Sprint(e.Set), 0.0
	if old, known := c.folded[e.Round]; known && old != all {
		c.world.fail("round %d folds %s, folded %s", e.Round, all, old)
	}
	c.folded[e.Round] = all
	for i, u := range e.Set {
		if i > 0 && (e.Set[i-1].Bucket > u.Bucket || e.Set[i-1].Bucket == u.Bucket && e.Set[i-1].Agent >= u.Agent) {
			c.world.fail("round %d folds out of order or twice: %v", e.Round, e.Set)
		}
		if spool[u.Agent] != (round.Spooled{Update: u.Update, Norm: u.Norm}) || u.Norm != normOf(u.Update) ||
			c.maker[u.Update] != fmt.Sprint(u.Agent, e.Round) {
			c.world.fail("round %d folds %s of %s, which is not in its spool", e.Round, nameOf(u.Update), u.Agent)
		}
		put(&c.in, e.Round, u.Agent, u.Update)
		sum += u.Factor / float64(u.Times)
	}
	for a, u := range c.accepted[e.Round] {
		if c.in[e.Round][a] != u {
			c.world.fail("round %d lost the accepted %s of %s", e.Round, nameOf(u), a)
		}
	}
	if e.Plan.Kind == wire.KindTraining && math.Abs(sum-float64(len(e.Set))) > 1e-12 || len(e.Set) == 0 {
		c.world.fail("round %d: the factors of %v add up to %g", e.Round, e.Set, sum)
	}
}

func (c *checks) obeys(a *agentHost, e round.Obey) {
	if e.Order.Compare(a.obeyed.Order) <= 0 {
		c.world.fail("%s obeys %s after %s", a.id, e.Order, a.obeyed.Order)
	}
}

// submits: only what is saved, and for the round that is obeyed.
func (c *checks) submits(a *agentHost, e round.Submit) {
	o := a.obeyed.Order
	if o.Run != e.Run || o.Round != e.Round || o.Phase != wire.PhaseOpen {
		c.world.fail("%s submits for round %d and obeys %s", a.id, e.Round, o)
	}
	if a.saved == nil || a.saved.Update != e.Update || a.saved.Round != e.Round {
		c.world.fail("%s submits %s, which it has not saved", a.id, nameOf(e.Update))
	}
}

// ended: an agent tells the end of its work in a round once.
func (c *checks) ended(a *agentHost, f round.AgentFact) {
	if f, ok := f.(round.WorkEnded); ok {
		if c.ends == nil {
			c.ends = map[string]int{}
		}
		key := fmt.Sprint(a.id, a.life, f.Round)
		if c.ends[key]++; c.ends[key] > 1 {
			c.world.fail("%s tells twice how round %d ended", a.id, f.Round)
		}
	}
}

// remembers: each round has one line in the history, in order, whatever is killed between the journal and the line.
func (c *checks) remembers(before []round.Outcome, o round.Outcome) {
	if want := wire.RoundID(len(before) + 1); o.Round != want {
		c.world.fail("the history gets a line of round %d, want round %d", o.Round, want)
	}
}

func (c *checks) fact(f round.CoordinatorFact) {
	switch f := f.(type) {
	case round.RoundOpened:
		c.lastOpened, c.openedAt = f, c.world.now
	case round.RoundClosed:
		c.closed++
	case round.RoundAbandoned:
		c.abandoned++
		if f.Reason == round.AbandonQuorum {
			c.abandonedAt = c.world.now
		}
	}
}
