// Package part defines the building blocks of an agent. Each part implements one capability. Its state, files, events
// and tests are in one package, which imports this one and never the agent. Its constructor receives the dependencies
// and loads its files. The agent then calls the hooks that the part implements.
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

// AgentCore contains the objects that an agent shares with its parts. It is used on the event loop only, except where a
// type allows other goroutines.
type AgentCore struct {
	Federation   wire.FederationName
	ID           wire.AgentID
	Topics       mqtt.Topics
	StateFolder  state.Folder
	WriteRetrier *state.WriteRetrier
	Loop         *host.EventLoop // event loop, with its time and background jobs
	// Conn is the connection to the broker. It is nil while parts are constructed, except for the mesh.
	Conn        mqtt.Conn
	IsConnected bool // the connection to the broker is established
	// LastAnnouncement is the last received announcement, whether or not the agent obeys it.
	LastAnnouncement agentround.AnnouncementReceived
	// ObeyedPosition is the position of the last obeyed announcement.
	ObeyedPosition wire.AnnouncementPosition
	DataJobs       *host.SerialJobQueue // queue of jobs that read models and data
	ModelJobs      *host.SerialJobQueue // queue of jobs that judge, evaluate and store models
	Signer         *host.Signer         // signer of the agent's messages; package identity loads its key
	Sealer         *Sealer              // sealer of messages to the coordinator
	Observer       observe.Observer
	Logger         *slog.Logger
	Rand           *rand.Rand // source of jitter and nonces; tests depend on the order of draws
	// HandleRoundEvent passes an event to the round machine and performs the resulting effects.
	HandleRoundEvent func(agentround.Event)
	// StopAgent ends the agent before its next wait. Run returns the error.
	StopAgent func(error)
	// Publish sends a message. Lost messages are not an error, because important ones are repeated.
	Publish func(mqtt.Message)
	// IsUplinkBudgetSpent reports whether the uplink budget is used up. Then nothing is fetched.
	IsUplinkBudgetSpent func() bool
	// TrainingMustRest reports whether any part requires training to pause (TrainingRestDecider).
	TrainingMustRest func() bool
}

// RunJobThenOnLoop runs work in a queue, concurrently with the event loop, and then runs the returned function on the
// event loop. Neither runs after the agent has been stopped.
func (c *AgentCore) RunJobThenOnLoop(jobs *host.SerialJobQueue, work func() (then func())) {
	jobs.Enqueue(func() {
		if c.Loop.Context().Err() == nil {
			c.Loop.RunOnLoop(work())
		}
	})
}

// Starter is called once, when the agent starts.
type Starter interface{ Start() }

// BeforeWaitHook is called before each wait of the event loop, after it has handled an event, a result or a deadline.
type BeforeWaitHook interface{ BeforeWait() }

// TickHook is called when its deadline has passed. The agent asks for the deadline before each wait. Tick is called
// whenever any deadline of the agent has passed.
type TickHook interface {
	Deadline() (at time.Time, ok bool)
	Tick(now time.Time)
}

// EarliestDeadline is the earliest of several deadlines. Its zero value contains none.
type EarliestDeadline struct {
	At    time.Time
	IsSet bool // At is a deadline
}

// Add adds a deadline if ok is true.
func (e *EarliestDeadline) Add(at time.Time, ok bool) {
	if ok && (!e.IsSet || at.Before(e.At)) {
		e.At, e.IsSet = at, true
	}
}

// LinkFollower is called when the connection to the broker is established or lost, before the round machine is
// notified.
type LinkFollower interface {
	LinkUp()
	LinkDown(err error)
}

// LinkNeedReporter is called before the agent disconnects for a while. The agent stays connected if any part needs the
// link.
type LinkNeedReporter interface{ NeedsLink() bool }

// DirectMessageReceiver receives messages of some types that the coordinator has sent to this agent only. They are
// verified and unsealed. The error is a decoding error, or a host.MessageDropError with the reason for dropping the
// message.
type DirectMessageReceiver interface {
	DirectMessageTypes() []wire.MessageType
	ReceiveDirectMessage(e *wire.Envelope) error
}

// AnnouncementReceiver is called with each announcement signed by the coordinator, before the round machine decides
// whether the agent obeys it.
type AnnouncementReceiver interface {
	ReceiveAnnouncement(a agentround.AnnouncementReceived)
}

// AnnouncementFollower is called when the agent obeys an announcement.
type AnnouncementFollower interface {
	FollowAnnouncement(a agentround.AnnouncementReceived)
}

// HelloFiller adds fields to the next hello of the agent.
type HelloFiller interface{ FillHello(h *wire.Hello) }

// TrainingRestDecider is called before each wait. While any part returns true, training outside rounds pauses: endless
// blocks, and the fine-tuning of models for predictions.
type TrainingRestDecider interface{ TrainingMustRest() bool }

// StepLimiter is called before the training of a round. It returns the share of the local steps that the round may
// take, from 0 to 1. The smallest share is used.
type StepLimiter interface{ AllowedStepShare() float64 }

// Closer is called once after the agent has ended, even if its construction failed.
type Closer interface{ Close() }

// PartList contains the parts of an agent, in the order in which hooks are called.
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
