// Package part defines the interfaces and shared state of the parts of an agent. Each part is a package with one
// capability, which imports package part and never package agent, and the agent calls the interfaces that the part
// implements.
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

// AgentCore contains the objects that an agent shares with its parts. Unless a type allows concurrent use, it is used
// only on the event loop.
type AgentCore struct {
	Federation   wire.FederationName
	ID           wire.AgentID
	Topics       mqtt.Topics
	StateFolder  state.Folder
	WriteRetrier *state.WriteRetrier
	Loop         *host.EventLoop // event loop with the clock and background jobs
	// Conn is the connection to the broker. It is nil while parts are constructed, except for the mesh.
	Conn        mqtt.Conn
	IsConnected bool // whether the connection to the broker is established
	// LastAnnouncement is the last received announcement, whether or not the agent follows it.
	LastAnnouncement agentround.AnnouncementReceived
	// ObeyedPosition is the position of the last announcement that the agent followed.
	ObeyedPosition wire.AnnouncementPosition
	DataJobs       *host.SerialJobQueue // queue of jobs that read models and data
	ModelJobs      *host.SerialJobQueue // queue of jobs that judge, evaluate and store models
	Signer         *host.Signer         // signs the agent's messages; package identity sets its key
	Sealer         *Sealer              // component that encrypts messages to the coordinator
	Observer       observe.Observer
	Logger         *slog.Logger
	Rand           *rand.Rand // random numbers for jitter and nonces; tests rely on their order
	// HandleRoundEvent passes an event to the round state machine and performs the resulting effects.
	HandleRoundEvent func(agentround.Event)
	// StopAgent stops the event loop at its next wait. Run then returns the error.
	StopAgent func(error)
	// Publish sends a message. A lost message is not an error, because important messages are repeated.
	Publish func(mqtt.Message)
	// IsUplinkBudgetSpent reports whether the uplink budget is used up. The agent then fetches nothing.
	IsUplinkBudgetSpent func() bool
	// TrainingMustRest reports whether any part that implements TrainingRestDecider requires training to pause.
	TrainingMustRest func() bool
}

// RunJobThenOnLoop runs work in a job queue and then runs the function that work returned on the event loop. It runs
// neither of them after the agent has stopped.
func (c *AgentCore) RunJobThenOnLoop(jobs *host.SerialJobQueue, work func() (then func())) {
	jobs.Enqueue(func() {
		if c.Loop.Context().Err() == nil {
			c.Loop.RunOnLoop(work())
		}
	})
}

// Starter is implemented by parts with a Start method that runs once when the agent starts.
type Starter interface{ Start() }

// BeforeWaitHook is implemented by parts that must act before each wait of the event loop.
type BeforeWaitHook interface{ BeforeWait() }

// TickHook is implemented by parts with deadlines. The agent calls Deadline before each wait and calls Tick on all
// parts after any deadline has passed.
type TickHook interface {
	Deadline() (at time.Time, ok bool)
	Tick(now time.Time)
}

// EarliestDeadline computes the earliest of several deadlines. The zero value contains no deadline.
type EarliestDeadline struct {
	At    time.Time
	IsSet bool // false if no deadline was added
}

// Add adds a deadline if ok is true. A zero time is due immediately.
func (e *EarliestDeadline) Add(at time.Time, ok bool) {
	if ok && at.IsZero() {
		at = time.Unix(0, 0) // The event loop waits without a limit if its deadline is zero.
	}
	if ok && (!e.IsSet || at.Before(e.At)) {
		e.At, e.IsSet = at, true
	}
}

// LinkFollower is implemented by parts that must know when the broker connection is established or lost. They are
// called before the round state machine.
type LinkFollower interface {
	LinkUp()
	LinkDown(err error)
}

// LinkNeedReporter is implemented by parts that may need the broker connection. The agent disconnects temporarily only
// if no part needs the connection.
type LinkNeedReporter interface{ NeedsLink() bool }

// DirectMessageReceiver receives messages of certain types that the coordinator sends only to this agent, already
// verified and decrypted. The error is a decoding error or a host.MessageDropError with the reason for dropping the
// message.
type DirectMessageReceiver interface {
	DirectMessageTypes() []wire.MessageType
	ReceiveDirectMessage(e *wire.Envelope) error
}

// AnnouncementReceiver receives each announcement with a valid signature, before the agent decides whether to follow
// the announcement.
type AnnouncementReceiver interface {
	ReceiveAnnouncement(a agentround.AnnouncementReceived)
}

// AnnouncementFollower receives each announcement that the agent follows.
type AnnouncementFollower interface {
	FollowAnnouncement(a agentround.AnnouncementReceived)
}

// HelloFiller adds fields to the agent's next hello message.
type HelloFiller interface{ FillHello(h *wire.Hello) }

// TrainingRestDecider is implemented by parts that can pause training outside rounds. Endless mixing and fine-tuning
// pause while any part returns true.
type TrainingRestDecider interface{ TrainingMustRest() bool }

// StepLimiter is implemented by parts that can reduce the local steps of a round. AllowedStepShare returns a share from
// 0 to 1, and the smallest share of all parts applies.
type StepLimiter interface{ AllowedStepShare() float64 }

// Closer is implemented by parts with resources to release. Close is called once after the agent has ended or failed to
// start.
type Closer interface{ Close() }

// PartList contains the parts of an agent, in the order in which hooks are called.
type PartList []any

// PartsImplementing iterates over the parts that implement the interface Hook, in list order.
func PartsImplementing[Hook any](parts PartList) iter.Seq[Hook] {
	return func(yield func(Hook) bool) {
		for _, p := range parts {
			if h, ok := p.(Hook); ok && !yield(h) {
				return
			}
		}
	}
}
