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

// World is the deterministic simulation of one plan, with a coordinator, agents, disks and a broker.
type World struct {
	plan    Plan
	bugs    Bugs
	began   time.Time
	now     time.Time
	agenda  agenda
	rng     *rand.Rand
	current *job
	parties []*party // the coordinator, followed by the agents
	broker  *broker
	engine  *engine.FakeKVServer // replicated store that the coordinator's machines share
	// engineDown is the number of active faults that make the replicated store unavailable.
	engineDown int
	check      invariantChecker
	secrets    []wire.SealSecret // secret encryption keys of all coordinator processes
	pairs      map[pairing]wire.AgentSealKeys

	healed          time.Time // end of the last fault
	finished        time.Time // time at which the run ended; zero before the end
	failure         string
	events          int
	eventsAtOneTime int // number of events and immediate waits since the time last advanced
	sum             hash.Hash
	out             io.Writer // output for the transcript; nil means that no transcript is written
	digest          hash.Hash // hash of the sent messages; see Result.Digest
}

// Bugs are deliberate defects that the checks must detect. The zero value contains no defects.
type Bugs struct {
	// Forget reports whether a party's disk skips an operation but reports success. The operations are "sync", "sync
	// folder", "write", "rename", "remove", "truncate", "create" and "mkdir".
	Forget func(party int, op, path string) bool
	// Late reports whether a party's disk delays the sync of a file until the next sync, but reports success.
	Late func(party int, path string) bool
	// Say reports whether a message of a party is sent. Say receives the decrypted message.
	Say func(party int, m mqtt.Message) bool
	// Configure changes the configuration of the coordinator.
	Configure func(cfg *coordinator.Config)
}

// Result is the result of a run.
type Result struct {
	Failure    string // violated invariant; empty if the run succeeded
	Transcript string // SHA-256 hash of the transcript
	// Digest is a hash over all sent messages. For each message, it covers the time, the sender, the type, the round,
	// and the model or update. It contains no Go names and no encoded bytes, so that a renamed type or a new section of
	// a message does not change it.
	Digest    string
	Took      time.Duration // duration of the run in virtual time
	Events    int
	Rounds    int             // number of closed rounds
	Opened    []time.Duration // time of the first announcement of each round
	Messages  int
	Balanced  int // number of blocks whose mixing preserved the sum of all parameters
	Drawn     int // number of rounds whose draws were recomputed
	Folded    int // number of models that were recomputed
	LeftOut   int // number of updates that the setting refuse_above rejected
	Clipped   int // number of updates that were clipped
	Refreshed int // number of models converted to new column moments
	Evaluated int // number of finished evaluations of models by agents
	Residuals int // number of checked residuals of the codec top_k
	Commits   int // number of journals that were committed, if the coordinator has several machines
	Signed    int // number of signatures that were created
	Verified  int
}

// Limits of a run.
const (
	patience   = 30 * time.Minute // maximum time from the last fault to the end of the run
	settling   = 30 * time.Minute // time between the end of the run and the final check
	mostEvents = 2_000_000
	mostStill  = 20_000 // maximum number of events while the time does not advance
)

// Run runs a plan. It writes the transcript to out unless out is nil.
func Run(plan Plan, bugs Bugs, out io.Writer) Result {
	_, r := run(plan, bugs, out)
	return r
}

// run runs a plan like Run. run also returns the final state of the world.
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

// processEvents processes scheduled events until the run has finished or failed.
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
			w.fail("the run has not finished within %s after the last fault", patience)
		case w.events > mostEvents:
			w.fail("more than %d events", mostEvents)
		case w.eventsAtOneTime > mostStill:
			w.fail("%d events occurred while the simulated time did not advance", w.eventsAtOneTime)
		}
	}
}

// end stops all processes.
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

// jobTime returns the time of the running job, which may be later than the world's time.
func (w *World) jobTime() time.Time {
	if w.current != nil {
		return w.now.Add(w.current.usedTime)
	}
	return w.now
}

func (w *World) after(d time.Duration, do func()) { w.agenda.add(w.jobTime().Add(d), do) }

// spend adds the duration d to the time that the running job has used.
func (w *World) spend(d time.Duration) {
	if w.current != nil {
		w.current.usedTime += d
	}
}

// hesitation returns a random delay with which a job is scheduled.
func (w *World) hesitation() time.Duration {
	return time.Duration(w.rng.Int64N(int64(200 * time.Microsecond)))
}

func (w *World) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rng.Int64N(int64(most-least)))
}

// note writes a line to the transcript.
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

// describePayload returns the length and a hash prefix of a payload.
func describePayload(p []byte) string {
	sum := sha256.Sum256(p)
	return fmt.Sprintf("%d bytes %x", len(p), sum[:4])
}
