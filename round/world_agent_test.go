package round_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// agentHost is an agent's host that trains by waiting.
type agentHost struct {
	w       *world
	id      wire.AgentID
	index   int
	machine *round.Agent // nil while it is not running
	life    int
	timer   int
	up      bool

	worked  int           // pieces of work begun; Release makes the last one void
	sending *round.Submit // until it is answered or released

	obeyed round.Obey // on disk
	saved  *round.SavedUpdate
}

func newAgentHost(w *world, i int) *agentHost {
	return &agentHost{w: w, index: i, id: wire.AgentID(fmt.Sprint("a", i))}
}

func (a *agentHost) alive() bool { return a.machine != nil }

func (a *agentHost) boot() {
	if a.alive() {
		return
	}
	a.life++
	a.sending = nil
	rng := rand.New(rand.NewPCG(a.w.cfg.Seed, uint64(1000*a.index+a.life)))
	a.machine = round.NewAgent(a.obeyed.Order, a.obeyed.Digest, a.saved, rng)
	a.later(a.w.between(0, 10*time.Second), func() { a.cut(true) })
}

func (a *agentHost) crash() {
	a.w.log(string(a.id), died{})
	a.machine = nil
	if a.w.rng.IntN(4) == 0 {
		a.saved = nil // it was never written: the next life makes another update
	}
	a.lost()
	a.w.after(a.w.between(time.Second, 2*time.Minute), a.boot)
}

// lost is what the broker says of the agent when it notices, which may be long
// after the agent is back.
func (a *agentHost) lost() {
	if a.up {
		a.up = false
		a.w.after(a.w.between(0, 90*time.Second),
			func() { a.w.coord.take(round.PresenceCame{Agent: a.id, State: wire.StateLost}) })
	}
}

func (a *agentHost) cut(up bool) {
	switch {
	case !a.alive() || a.up == up:
	case up:
		a.up = true
		a.step(round.LinkUp{})
		a.read()
	default:
		a.lost()
		a.step(round.LinkDown{})
	}
}

// read asks the broker for the retained announcement.
func (a *agentHost) read() {
	if r := a.w.retained; r != nil {
		a.w.after(a.w.between(5*time.Millisecond, time.Second), func() { a.hear(*r) })
	}
}

func (a *agentHost) later(d time.Duration, do func()) {
	life := a.life
	a.w.after(d, func() {
		if a.alive() && a.life == life {
			do()
		}
	})
}

// hear takes a message from the coordinator, if the link is up.
func (a *agentHost) hear(ev round.Event) {
	if !a.alive() || !a.up {
		return
	}
	switch e := ev.(type) {
	case round.AcceptedCame:
		a.sent(e.Round, e.Update)
	case round.RefusedCame:
		a.sent(e.Round, e.Update)
	}
	a.step(ev)
}

func (a *agentHost) sent(r wire.RoundID, update wire.Digest) {
	if a.sends(r, update) {
		a.sending = nil
	}
}

// sends reports whether chunks of the update come when there is credit.
func (a *agentHost) sends(r wire.RoundID, update wire.Digest) bool {
	return a.alive() && a.up && a.sending != nil && a.sending.Round == r && a.sending.Update == update
}

func (a *agentHost) step(ev round.Event) {
	a.w.log(string(a.id), ev)
	for _, e := range a.machine.Step(a.w.now, ev) {
		if a.w.odds(a.w.trouble.crash) {
			a.crash()
			return
		}
		a.w.log(string(a.id), e)
		a.perform(e)
	}
	at, ok := a.machine.Deadline()
	if ok && !at.After(a.w.now) {
		a.w.fail("%s wants a tick in the past", a.id)
	}
	if a.timer++; ok {
		timer := a.timer
		a.later(at.Sub(a.w.now), func() {
			if a.timer == timer {
				a.step(round.Tick{})
			}
		})
	}
}

// say sends a message to the coordinator, if the link is up.
func (a *agentHost) say(deliver func()) {
	if a.up {
		a.w.send(deliver)
	}
}

func (a *agentHost) perform(e round.Effect) {
	coord := a.w.coord
	switch e := e.(type) {
	case round.Obey:
		a.w.checks.obeys(a, e)
		if a.w.odds(0.05) { // the disk is full for a while
			a.later(0, func() { a.step(round.Obeyed{Order: e.Order, Failed: true}) })
			a.later(a.w.between(time.Second, time.Minute), func() { a.obey(e) })
		} else {
			a.later(0, func() { a.obey(e) })
		}
	case round.Prepare:
		a.prepare(e.Task)
	case round.FetchModel:
		a.work(10*time.Second, func() {
			a.step(round.Fetched{Base: e.Base.Hash, Failed: !a.up || a.w.odds(0.05)})
		})
	case round.Train:
		a.work(60*time.Second, func() { a.trained(e) })
	case round.Submit:
		a.w.checks.submits(a, e)
		a.sending = &e
		a.offer(&e)
	case round.Release:
		a.worked++
		a.sending, a.saved = nil, nil
	case round.Report[round.AgentFact]:
		a.w.checks.ended(a, e.Fact)
	case round.SayHello:
		h := wire.Hello{Announcement: e.Announcement, Unfit: e.Unfit, Samples: e.Samples, Update: e.Update}
		boot := wire.Epoch(a.life)
		a.say(func() { coord.greeted(round.HelloCame{Agent: a.id, Boot: boot, Hello: h}) })
		a.read()
	case round.SayJoined:
		a.say(func() { coord.answered(e.Announcement, round.JoinedCame{Agent: a.id, Round: e.Order.Round}) })
	case round.SayDeclined:
		a.say(func() {
			coord.answered(e.Announcement, round.DeclinedCame{Agent: a.id, Round: e.Order.Round, Reason: e.Reason})
		})
	}
}

// obey writes the newest place only.
func (a *agentHost) obey(e round.Obey) {
	if e.Order.Compare(a.obeyed.Order) > 0 {
		a.obeyed = e
		a.step(round.Obeyed{Order: e.Order})
	}
}

// work ends after at most so long, unless it is released before.
func (a *agentHost) work(most time.Duration, end func()) {
	a.worked++
	worked := a.worked
	a.later(a.w.between(most/20, most), func() {
		if a.worked == worked {
			end()
		}
	})
}

// fits reports whether the data fit a task: some agents' never do, some only
// the first or the second one's.
func (a *agentHost) fits(task wire.Digest) bool {
	switch a.index {
	case 3:
		return task != name("training")
	case 4:
		return task != name("statistics")
	case 5:
		return false
	}
	return true
}

func (a *agentHost) samples() uint64 { return uint64(10 + a.index) }

func (a *agentHost) prepare(task wire.BlobRef) {
	d := a.w.between(100*time.Millisecond, 10*time.Second)
	if a.index == 2 {
		d *= 20 // a very slow one
	}
	a.later(d, func() {
		p := round.Prepared{Task: task.Hash, Samples: a.samples()}
		switch {
		case !a.up && a.w.troubled(), a.w.odds(0.1):
			p.Unfit, p.Samples = wire.DeclineFetch, 0
		case !a.fits(task.Hash):
			p.Unfit = wire.DeclineBadData
		}
		a.step(p)
	})
}

// trained saves the update; another life would have made another one.
func (a *agentHost) trained(e round.Train) {
	t := round.Trained{Run: e.Order.Run, Round: e.Order.Round}
	if a.w.odds(0.03) {
		t.Failed = wire.DeclineDiverged
	} else {
		t.Update = name(fmt.Sprintf("%s/%d/%d", a.id, t.Round, a.life))
		a.saved = &round.SavedUpdate{Run: t.Run, Round: t.Round, Base: e.Announcement.Base.Hash, Update: t.Update}
		a.w.checks.made(a.id, t)
	}
	a.step(t)
}

// offer repeats the manifest until it is answered.
func (a *agentHost) offer(s *round.Submit) {
	if a.sending != s {
		return
	}
	plan := a.saved
	u := wire.Update{Kind: wire.KindTraining, Base: plan.Base, Samples: a.samples(),
		Payload: wire.Manifest{Hash: s.Update}}
	if plan.Base.IsZero() {
		u.Kind = wire.KindStatistics
	}
	a.say(func() {
		a.w.coord.take(round.OfferCame{Offer: round.Offer{Agent: a.id, Run: s.Run, Round: s.Round, Update: u}})
	})
	a.later(a.w.between(3*time.Second, 8*time.Second), func() { a.offer(s) })
}
