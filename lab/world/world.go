package world

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/internal/testkit/engine"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// World is one run.
type World struct {
	plan    Plan
	bugs    Bugs
	began   time.Time
	now     time.Time
	agenda  agenda
	rng     *rand.Rand
	current *job
	parties []*party // the coordinator, then the agents
	broker  *broker
	engine  *engine.FakeKVServer // of the coordinator's machines
	// engineDown counts the faults that keep it from answering.
	engineDown int
	check      invariantChecker
	secrets    []wire.SealSecret // of the coordinators that have lived
	pairs      map[pairing]wire.AgentSealKeys

	healed          time.Time // when the last fault is over
	finished        time.Time // when the run was; zero before
	failure         string
	events          int
	eventsAtOneTime int // events, and waits that returned at once, since time has passed
	sum             hash.Hash
	out             io.Writer // of the transcript; nil for none
	digest          hash.Hash // of the sent messages: see Result.Digest
}

// Bugs are planted to see them found. The zero value has none.
type Bugs struct {
	// Forget says that a party's disk does not do an operation, and tells it otherwise: "sync", "sync folder", "write",
	// "rename", "remove", "truncate", "create" or "mkdir".
	Forget func(party int, op, path string) bool
	// Late says that a party's disk syncs a file after the next sync of another one, and tells it otherwise.
	Late func(party int, path string) bool
	// Say has a party say nothing, with false. It sees what is sealed.
	Say func(party int, m mqtt.Message) bool
	// Configure changes how the coordinator works.
	Configure func(cfg *coordinator.Config)
}

// Result is how a run went.
type Result struct {
	Failure    string // what was broken; empty if nothing was
	Transcript string // the SHA-256 of all that happened
	// Digest is a hash of each sent message's time, sender, type, round and model or update. It has no names of Go and
	// no bytes of the protocol in it, so that a renamed type or a new section does not change it.
	Digest    string
	Took      time.Duration // in virtual time
	Events    int
	Rounds    int             // closed
	Opened    []time.Duration // when each round was announced first
	Messages  int
	Balanced  int // blocks in which mixing was seen to conserve
	Drawn     int // draws that were made again
	Folded    int // models that were computed anew
	LeftOut   int // updates that refuse_above left out
	Clipped   int // updates that clip shortened
	Refreshed int // models that were expressed in other columns in the middle of a run
	Evaluated int // evaluations of models by their agents
	Residuals int // of the codec top_k, that were held against what became of their updates
	Commits   int // journals that counted on several machines
	Signed    int // signatures
	Verified  int
}

// The bounds of a run.
const (
	patience   = 30 * time.Minute // from the last fault to the end of the run
	settling   = 30 * time.Minute // from there to a look at what is left
	mostEvents = 2_000_000
	mostStill  = 20_000 // events at one moment
)

// Run runs a plan. The transcript is written to out, unless that is nil.
func Run(plan Plan, bugs Bugs, out io.Writer) Result {
	_, r := run(plan, bugs, out)
	return r
}

// run is Run, and returns the world at its end.
func run(plan Plan, bugs Bugs, out io.Writer) (*World, Result) {
	w := &World{plan: plan, bugs: bugs, rng: rand.New(rand.NewPCG(plan.Seed, 1)), sum: sha256.New(), out: out,
		digest: sha256.New(), engine: engine.New(), began: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.now = w.began
	w.broker = newBroker(w)
	w.check = newCheck(w)
	w.populate()
	for _, f := range plan.Faults {
		w.agenda.add(w.began.Add(f.At), func() { w.injectFault(f) })
	}
	w.healed = w.began
	w.processEvents()
	w.end()
	return w, Result{Failure: w.failure, Transcript: hex.EncodeToString(w.sum.Sum(nil)),
		Digest: hex.EncodeToString(w.digest.Sum(nil)[:8]), Took: w.now.Sub(w.began),
		Events: w.events, Rounds: w.check.closed, Opened: w.check.began, Messages: w.check.messages,
		Balanced: w.check.balanced, Drawn: w.check.drawings, Folded: w.check.folds, LeftOut: w.check.refusedAbove,
		Clipped: w.check.clipped, Refreshed: w.check.refreshes, Residuals: w.check.residuals,
		Evaluated: w.check.evaluations, Commits: w.check.turns, Signed: w.check.signed, Verified: w.check.verified}
}

// processEvents does what is on the agenda until the run is over, or fails.
func (w *World) processEvents() {
	defer func() {
		if r := recover(); r != nil {
			w.fail("panic: %v\n%s", r, debug.Stack())
		}
	}()
	for w.failure == "" && len(w.agenda.heap) > 0 {
		e := w.agenda.next()
		if w.eventsAtOneTime++; e.at.After(w.now) {
			w.now, w.eventsAtOneTime = e.at, 0
		}
		w.events++
		e.do()
		w.cancelled()
		switch {
		case w.failure != "":
		case !w.finished.IsZero() && w.now.Sub(later(w.finished, w.healed)) > settling:
			w.check.end()
			return
		case w.finished.IsZero() && w.now.Sub(w.healed) > patience:
			w.fail("the run is not finished %s after the last fault", patience)
		case w.events > mostEvents:
			w.fail("more than %d events", mostEvents)
		case w.eventsAtOneTime > mostStill:
			w.fail("%d events and no time passes", w.eventsAtOneTime)
		}
	}
}

// end unwinds all that still runs.
func (w *World) end() {
	for _, p := range w.parties {
		p.kill()
		p.reap()
	}
}

func (w *World) fail(format string, args ...any) {
	if w.failure == "" {
		w.failure = fmt.Sprintf("at %s: ", w.jobTime().Sub(w.began)) + fmt.Sprintf(format, args...)
		w.note("FAILED: %s", w.failure)
	}
}

// jobTime is the time of the job that runs, which may be ahead of the world's.
func (w *World) jobTime() time.Time {
	if w.current != nil {
		return w.now.Add(w.current.usedTime)
	}
	return w.now
}

func (w *World) after(d time.Duration, do func()) { w.agenda.add(w.jobTime().Add(d), do) }

// spend has the job that runs use time.
func (w *World) spend(d time.Duration) {
	if w.current != nil {
		w.current.usedTime += d
	}
}

// hesitation is how long a job waits for its turn.
func (w *World) hesitation() time.Duration {
	return time.Duration(w.rng.Int64N(int64(200 * time.Microsecond)))
}

func (w *World) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rng.Int64N(int64(most-least)))
}

// note adds a line to the transcript.
func (w *World) note(format string, args ...any) {
	line := fmt.Sprintf("%12.6f ", w.jobTime().Sub(w.began).Seconds()) + fmt.Sprintf(format, args...) + "\n"
	_, _ = io.WriteString(w.sum, line)
	if w.out != nil {
		_, _ = io.WriteString(w.out, line)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// describePayload names a payload.
func describePayload(p []byte) string {
	sum := sha256.Sum256(p)
	return fmt.Sprintf("%d bytes %x", len(p), sum[:4])
}
