// Package part is what a capability of the agent is built from. A part is one capability: its state, its files, its
// events and its tests are in one package, which imports this one and never the agent. Its constructor takes what it
// depends on and reads its files. The agent then calls those hooks that the part implements.
package part

import (
	"iter"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// Core is what the agent shares with its parts. All of it is used on the owner's goroutine, except where a type says
// that it may be used from any.
type Core struct {
	Federation wire.Federation
	ID         wire.AgentID
	Topics     mqtt.Topics
	State      state.Folder
	Writes     *state.Writes
	Loop       *host.EventLoop // the owner: time, and jobs beside it
	// Conn is the connection to the broker. It is nil while parts are constructed; only the mesh is constructed later.
	Conn      mqtt.Conn
	Connected bool // there is a link to the broker
	// Announcement is the last announcement that was received, whether the agent obeys it or not.
	Announcement agentround.AnnouncementReceived
	// ObeyedPosition is the position of the last announcement that the agent has obeyed.
	ObeyedPosition wire.AnnouncementPosition
	DataJobs       *host.SerialQueue // jobs that read models and data
	ModelJobs      *host.SerialQueue // jobs that judge, evaluate and store models
	Signer         *host.Signer      // signs the agent's messages; package identity loads its key
	Sealer         *Sealer           // seals its messages to the coordinator
	Observer       observe.Observer
	Logger         *slog.Logger
	Rand           *rand.Rand // jitter and nonces; the order of draws is part of the behaviour
	// Step gives the round machine an event and performs the effects that follow.
	Step func(agentround.Event)
	// Stop ends the agent before its next wait. Run returns the error.
	Stop func(error)
	// Publish sends a message. One that is lost is not an error: what matters is repeated.
	Publish func(mqtt.Message)
	// UplinkSpent reports whether nothing is left of the budget of the uplink: then nothing is fetched.
	UplinkSpent func() bool
	// MustRest reports whether any part has training rest (Rester).
	MustRest func() bool
}

// Do runs work in a queue, beside the owner, and then the function that it returns on the owner's goroutine. Neither
// runs once the agent has been told to end.
func (c *Core) Do(jobs *host.SerialQueue, work func() (then func())) {
	jobs.Do(func() {
		if c.Loop.Context().Err() == nil {
			c.Loop.RunOnLoop(work())
		}
	})
}

// Starter is called once, when the agent begins to run.
type Starter interface{ Start() }

// BeforeWaiter is called before each wait of the owner: after each event, result and deadline.
type BeforeWaiter interface{ BeforeWait() }

// Timer is called when its deadline has passed. The agent asks for the deadline before each wait. Tick is called
// whenever any deadline of the agent has passed.
type Timer interface {
	Deadline() (at time.Time, ok bool)
	Tick(now time.Time)
}

// Earliest is the earliest of several deadlines. Its zero value has none.
type Earliest struct {
	At time.Time
	OK bool // there is a deadline
}

// Add adds a deadline if ok.
func (e *Earliest) Add(at time.Time, ok bool) {
	if ok && (!e.OK || at.Before(e.At)) {
		e.At, e.OK = at, true
	}
}

// LinkFollower is called when the link to the broker has come up, and when it is gone, before the round machine hears
// of it.
type LinkFollower interface {
	LinkUp()
	LinkDown(err error)
}

// LinkUser is asked before the agent leaves the broker for a while: it stays if any part needs the link.
type LinkUser interface{ NeedsLink() bool }

// Listener receives the messages of some types that the coordinator has sent to this agent alone. They are verified and
// opened. The error is why a message is dropped, if it is a host.DropError, or that it cannot be decoded.
type Listener interface {
	Types() []wire.MessageType
	Receive(e *wire.Envelope) error
}

// AnnouncementReceiver is called with each announcement that the coordinator has signed, before the round machine
// decides whether the agent obeys it.
type AnnouncementReceiver interface {
	ReceiveAnnouncement(a agentround.AnnouncementReceived)
}

// AnnouncementFollower is called when the agent obeys an announcement.
type AnnouncementFollower interface {
	FollowAnnouncement(a agentround.AnnouncementReceived)
}

// Greeter adds to the hello that the agent is about to send.
type Greeter interface{ FillHello(h *wire.Hello) }

// Rester is asked before each wait. While any part answers true, training that no round waits for rests: an endless
// block, and the fine-tuning of a model to predict with.
type Rester interface{ MustRest() bool }

// StepLimiter is asked before the training of a round. It returns the share of the local steps that the round may take,
// from 0 to 1. The smallest share counts.
type StepLimiter interface{ StepShare() float64 }

// Closer is called once, after the agent has ended, also if its construction failed.
type Closer interface{ Close() }

// List is the parts of an agent, in the order in which every hook is called.
type List []any

// Implementing returns the parts that implement a hook, in the order of the list.
func Implementing[Hook any](parts List) iter.Seq[Hook] {
	return func(yield func(Hook) bool) {
		for _, p := range parts {
			if h, ok := p.(Hook); ok && !yield(h) {
				return
			}
		}
	}
}
