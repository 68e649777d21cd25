package coordinator

import (
	"time"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// Observer is told what happens: the round.Fact values of the coordinator's
// machine and the facts of this package. It is called from one goroutine and
// must not block.
type Observer interface{ Observe(fact any) }

// DropReason tells why an incoming message was not used. It is a metric's label.
type DropReason string

// The reasons for dropping a message.
const (
	DropMalformed DropReason = "malformed"
	DropVersion   DropReason = "version"
	DropSignature DropReason = "bad_signature"
	DropForeign   DropReason = "foreign" // another federation, or a topic that is not the sender's
	DropUnknown   DropReason = "unknown_agent"
	DropReplayed  DropReason = "replayed" // not newer than what came before from this agent
	DropOverflow  DropReason = "overflow" // the mailbox was full: counted by the session, not a fact
)

// DropReasons returns all reasons, for closed label sets.
func DropReasons() []DropReason {
	return []DropReason{DropMalformed, DropVersion, DropSignature, DropForeign, DropUnknown, DropReplayed, DropOverflow}
}

// FarAgent is an agent with its worst column, whose rows lie so many of the common standard deviations from the common mean.
type FarAgent struct {
	Agent      wire.AgentID
	Column     string
	Deviations float64
}

// Facts of the host.
type (
	// LinkChanged: the broker is connected, or not.
	LinkChanged struct {
		Up  bool
		Err error // when down
	}
	// SubscriptionsRefused: the broker refuses these filters now, which the
	// coordinator needs; it is asked for them again. Told when the list changes.
	SubscriptionsRefused struct{ Filters []string }
	// AgentsListed: who may take part, in id order. Told at the start, and when
	// another list takes effect.
	AgentsListed struct{ Agents []wire.AgentID }
	// BrokerTested: the broker carries the largest messages, or not.
	BrokerTested struct{ mqtt.SelfTested }
	// CloneSeen: two devices speak as one agent. Told once an hour for each.
	CloneSeen struct {
		Agent  wire.AgentID
		Boots  [2]wire.Epoch
		Nonces [2]uint64
	}
	// BlobChecked: the broker was asked for a blob that was published for the
	// agents to fetch. Until nothing is missing it is not announced.
	BlobChecked struct {
		Blob           wire.Digest
		Parts, Missing int           // the manifest and the chunks
		Refused        bool          // the broker does not let the coordinator read them
		Took           time.Duration // to read it back, or to give up
		Again          time.Duration // until it is published again
	}
	// MessageDropped: an incoming message was not used.
	MessageDropped struct {
		Kind   mqtt.Kind
		Agent  wire.AgentID // as the topic says; may be empty
		Reason DropReason
		Err    error
	}
	// AgentReported: an agent told how it is doing.
	AgentReported struct {
		Agent  wire.AgentID
		Boot   wire.Epoch // its counts began with
		Report wire.Report
	}
	// StatisticsReady: the statistics round gave the task its standardisation.
	StatisticsReady struct {
		Rows    float64
		Columns int
		Far     []FarAgent // whose data lie far from the others'
	}
	// ModelReady: a new model is on disk.
	ModelReady struct {
		Round    wire.RoundID
		Version  wire.ModelVersion
		Hash     wire.Digest
		Bytes    int
		Risk     float64        // mean of the participants' risks at the base model, NaN when unknown
		Score    *learner.Score // on the evaluation data; nil without any
		Spread   float64        // of the updates in it around their mean, as a Euclidean distance
		FoldTook time.Duration
	}
	// TransfersChanged: where the uploads stand.
	TransfersChanged struct{ Receiving, Queued, BufferedBytes int }
)
