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

// AgentCore is what the agent shares with its parts. All of it is used on the owner's goroutine, except where a type
// says that it may be used from any.
type AgentCore struct {
	Federation   wire.FederationName
	ID           wire.AgentID
	Topics       mqtt.Topics
	StateFolder  state.Folder
	WriteRetrier *state.WriteRetrier
	Loop         *host.EventLoop // the owner: time, and jobs beside it
	// Conn is the connection to the broker. It is nil while parts are constructed; only the mesh is constructed later.
	Conn        mqtt.Conn
	IsConnected bool // there is a link to the broker
	// LastAnnouncement is the last announcement that was received, whether the agent obeys it or not.
	LastAnnouncement agentround.AnnouncementReceived
	// ObeyedPosition is the position of the last announcement that the agent has obeyed.
	ObeyedPosition wire.AnnouncementPosition
	DataJobs       *host.SerialJobQueue // jobs that read models and data
	ModelJobs      *host.SerialJobQueue // jobs that judge, evaluate and store models
	Signer         *host.Signer         // signs the agent's messages; package identity loads its key
	Sealer         *Sealer              // seals its messages to the coordinator
	Observer       observe.Observer
	Logger         *slog.Logger
	Rand           *rand.Rand // jitter and nonces; the order of draws is part of the behaviour
	// HandleRoundEvent gives the round machine an event and performs the effects that follow.
	HandleRoundEvent func(agentround.Event)
	// StopAgent ends the agent before its next wait. Run returns the error.
	StopAgent func(error)
	// Publish sends a message. One that is lost is not an error: what matters is repeated.
	Publish func(mqtt.Message)
	// IsUplinkBudgetSpent reports whether nothing is left of the budget of the uplink: then nothing is fetched.
	IsUplinkBudgetSpent func() bool
	// TrainingMustRest reports whether any part has training rest (TrainingRestDecider).
	TrainingMustRest func() bool
}

// RunJobThenOnLoop runs work in a queue, beside the owner, and then the function that it returns on the owner's
// goroutine. Neither runs once the agent has been told to end.
func (c *AgentCore) RunJobThenOnLoop(jobs *host.SerialJobQueue, work func() (then func())) {
	jobs.Enqueue(func() {
		if c.Loop.Context().Err() == nil {
			c.Loop.RunOnLoop(work())
		}
	})
}

// Starter is called once, when the agent begins to run.
type Starter interface{ Start() }

// BeforeWaitHook is called before each wait of the owner: after each event, result and deadline.
type BeforeWaitHook interface{ BeforeWait() }

// TickHook is called when its deadline has passed. The agent asks for the deadline before each wait. Tick is called
// whenever any deadline of the agent has passed. A deadline must not be the zero time.
type TickHook interface {
	Deadline() (at time.Time, ok bool)
	Tick(now time.Time)
}

// EarliestDeadline is the earliest of several deadlines. Its zero value has none.
type EarliestDeadline struct {
	At    time.Time
	IsSet bool // there is a deadline
}

// Add adds a deadline if ok. It ignores the zero time, which would hide all other deadlines.
func (e *EarliestDeadline) Add(at time.Time, ok bool) {
	if ok && !at.IsZero() && (!e.IsSet || at.Before(e.At)) {
		e.At, e.IsSet = at, true
	}
}

// LinkFollower is called when the link to the broker has come up, and when it is gone, before the round machine hears
// of it.
type LinkFollower interface {
	LinkUp()
	LinkDown(err error)
}

// LinkNeedReporter is asked before the agent leaves the broker for a while: it stays if any part needs the link.
type LinkNeedReporter interface{ NeedsLink() bool }

// DirectMessageReceiver receives the messages of some types that the coordinator has sent to this agent alone. They are
// verified and opened. The error is why a message is dropped, if it is a host.MessageDropError, or that it cannot be
// decoded.
type DirectMessageReceiver interface {
	DirectMessageTypes() []wire.MessageType
	ReceiveDirectMessage(e *wire.Envelope) error
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

// HelloFiller adds to the hello that the agent is about to send.
type HelloFiller interface{ FillHello(h *wire.Hello) }

// TrainingRestDecider is asked before each wait. While any part answers true, training that no round waits for rests:
// an endless block, and the fine-tuning of a model to predict with.
type TrainingRestDecider interface{ TrainingMustRest() bool }

// StepLimiter is asked before the training of a round. It returns the share of the local steps that the round may take,
// from 0 to 1. The smallest share counts.
type StepLimiter interface{ AllowedStepShare() float64 }

// Closer is called once, after the agent has ended, also if its construction failed.
type Closer interface{ Close() }

// PartList is the parts of an agent, in the order in which every hook is called.
type PartList []any

// PartsImplementing returns the parts that implement a hook, in the order of the list.
func PartsImplementing[Hook any](parts PartList) iter.Seq[Hook] {
	return func(yield func(Hook) bool) {
		for _, p := range parts {
			if h, ok := p.(Hook); ok && !yield(h) {
				return
			}
		}
	}
}
