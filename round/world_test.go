package round_test

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// world is a whole federation in one thread: the machines with hosts that only
// pretend to work, a broker with one retained announcement, and faults until
// calm. Everything that happens is in a heap ordered by (time, sequence) and
// depends on the seed alone.
type world struct {
	rng      *rand.Rand
	now      time.Time
	sequence int
	queue    queue

	cfg      round.Config
	endless  bool      // blocks are
	calm     time.Time // no fault begins after it
	trouble  trouble
	coord    *coordinatorHost
	agents   []*agentHost
	retained *round.AnnouncementCame
	checks   checks

	history interface {
		Write([]byte) (int, error)
		Sum64() uint64
	}
	recent   []string // the newest lines, for a failure's message
	problems []string
}

// trouble says how bad it is until calm. Loss, double, slow and crash are
// probabilities, per message and per effect.
type trouble struct {
	loss, double, slow, crash float64
	agents, coordinator       time.Duration // mean time between faults
}

type happening struct {
	at       time.Time
	sequence int
	do       func()
}

type queue []happening

func (q queue) Len() int      { return len(q) }
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q queue) Less(i, j int) bool {
	if q[i].at.Equal(q[j].at) {
		return q[i].sequence < q[j].sequence
	}
	return q[i].at.Before(q[j].at)
}
func (q *queue) Push(x any) { *q = append(*q, x.(happening)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// newWorld draws a federation from the seed.
func newWorld(seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &world{rng: rng, now: dawn, calm: dawn.Add(30 * time.Minute), history: fnv.New64a()}
	w.trouble = trouble{
		loss: 0.3 * rng.Float64(), double: 0.2 * rng.Float64(), slow: 0.1 * rng.Float64(), crash: 0.01 * rng.Float64(),
		agents:      time.Duration(20+rng.IntN(200)) * time.Second,
		coordinator: time.Duration(60+rng.IntN(600)) * time.Second,
	}
	agents := 4 + rng.IntN(5)
	participants := 1 + rng.IntN(4)
	w.cfg = round.Config{
		Aggregation: rule.DefaultConfig(), ServerOptimizer: optimizer.DefaultConfig(),
		Participants: participants, Quorum: 1 + rng.IntN(min(participants, 3)), OverSelect: rng.IntN(3) / 2,
		Sampling: spec.WithoutReplacement, Weights: spec.WeightsEqual, Weighting: spec.WeightingStep, Seed: seed,
		Gather:   round.Gather{Minimum: 3, Within: 30 * time.Second, Spread: 5 * time.Second},
		Deadline: 3 * time.Minute, InviteEvery: 5 * time.Second,
		Pause: time.Duration(rng.IntN(2)) * 20 * time.Second,
	}
	if rng.IntN(3) == 0 {
		w.cfg.Sampling, w.cfg.OverSelect = spec.WithReplacement, 0
	}
	if w.cfg.Algorithm = spec.FedAvg; w.cfg.Sampling == spec.WithReplacement && rng.IntN(3) > 0 {
		w.cfg.Algorithm = spec.FedDec
	}
	if rng.IntN(2) == 0 {
		w.cfg.Gather.Target = 3
	}
	if rng.IntN(2) == 0 {
		w.cfg.Rounds = 20
	}
	w.endless = w.cfg.Algorithm == spec.FedDec && rng.IntN(2) == 0
	w.checks.world = w
	for i := range agents {
		w.agents = append(w.agents, newAgentHost(w, i))
	}
	w.coord = newCoordinatorHost(w, rng.IntN(2) == 0)
	w.coord.boot()
	for _, a := range w.agents {
		w.after(w.between(0, 20*time.Second), a.boot)
		w.plague(w.trouble.agents, a)
		// All lose their link in the end, and the broker's word of it comes late.
		w.after(w.calm.Sub(w.now)-2*time.Second, func() { a.cut(false) })
		w.after(w.calm.Sub(w.now)+w.between(0, 5*time.Second), func() { a.cut(true) })
	}
	w.plague(w.trouble.coordinator, w.coord)
	return w
}

// run lives through the faults and then on until end says that it is enough,
// an invariant breaks, or the limit passes. A machine whose deadline stays in
// the past would have its host tick for ever.
func (w *world) run(limit time.Duration, end func() bool) {
	const most = 10_000 // things that happen at one moment
	still := 0
	for len(w.problems) == 0 && !end() && w.now.Before(w.calm.Add(limit)) && w.queue.Len() > 0 {
		next := heap.Pop(&w.queue).(happening)
		if still++; next.at.After(w.now) {
			still = 0
		}
		if w.now = next.at; still > most {
			w.fail("time stands still")
		}
		next.do()
	}
}

func (w *world) after(d time.Duration, do func()) {
	w.sequence++
	heap.Push(&w.queue, happening{w.now.Add(d), w.sequence, do})
}

func (w *world) troubled() bool       { return w.now.Before(w.calm) }
func (w *world) odds(p float64) bool  { return w.troubled() && w.rng.Float64() < p }
func (w *world) since() time.Duration { return w.now.Sub(dawn) }

func (w *world) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rng.Int64N(int64(most-least)))
}

// send carries a message: perhaps never, twice, or very late.
func (w *world) send(deliver func()) {
	copies := 1
	switch {
	case w.odds(w.trouble.loss):
		return
	case w.odds(w.trouble.double):
		copies = 2
	}
	for range copies {
		d := w.between(5*time.Millisecond, 300*time.Millisecond)
		if w.odds(w.trouble.slow) {
			d = w.between(time.Second, time.Minute)
		}
		w.after(d, deliver)
	}
}

// publish makes the announcement the retained one and sends it to all that listen.
func (w *world) publish(a *round.AnnouncementCame) {
	w.retained = a
	for _, agent := range w.agents {
		if agent.up {
			w.send(func() { agent.hear(*a) })
		}
	}
}

// target is what faults happen to.
type target interface {
	crash()
	boot()
	cut(up bool)
	alive() bool
}

// plague makes the target crash or lose its link again and again, until calm.
func (w *world) plague(mean time.Duration, p target) {
	d := time.Duration(w.rng.ExpFloat64() * float64(mean))
	if !w.now.Add(d).Before(w.calm) {
		return
	}
	w.after(d, func() {
		switch {
		case !p.alive():
		case w.rng.IntN(3) == 0:
			p.crash() // it boots again by itself
		default:
			p.cut(false)
			w.after(w.between(time.Second, 2*time.Minute), func() { p.cut(true) })
		}
		w.plague(mean, p)
	})
}

func (w *world) log(who string, what any) {
	line := fmt.Sprintf("%s %s %s", w.since().Round(time.Millisecond), who, show(what))
	_, _ = w.history.Write([]byte(line))
	if w.recent = append(w.recent, line); len(w.recent) > 800 {
		w.recent = append([]string(nil), w.recent[400:]...)
	}
}

func (w *world) fail(format string, args ...any) {
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

// report is empty when nothing went wrong.
func (w *world) report() string {
	if len(w.problems) == 0 {
		return ""
	}
	return fmt.Sprintf("at %s: %s\nconfig %+v\n%s", w.since(), strings.Join(w.problems, "; "), w.cfg,
		strings.Join(w.recent, "\n"))
}

// agent returns the host with this id.
func (w *world) agent(id wire.AgentID) *agentHost {
	for _, a := range w.agents {
		if a.id == id {
			return a
		}
	}
	panic("no agent " + id)
}
