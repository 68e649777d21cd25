package transfer

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// maxChunkMessage is the longest message of a chunk, in bytes.
const maxChunkMessage = wire.ChunkHeaderSize + wire.MaxChunk

// ReceiverConfig is the policy of a Receiver.
type ReceiverConfig struct {
	MaxUpdate   int // longest update that is accepted, in bytes
	MaxBuffered int // sum of the lengths of the updates on their way, in bytes

	// Chunks that are lent and have not come, over all agents: what may stand
	// in the broker's queue for the coordinator. Half of Mosquitto's 1,000
	// messages are for chunks, less a fifth of it for control messages.
	MaxOutstandingChunks int
	MaxOutstandingBytes  int

	Window int           // chunks lent to one agent at a time
	Lease  time.Duration // of a credit
	Leases int           // leases in a row without a chunk, until a transfer is dropped
}

// DefaultReceiverConfig returns the defaults.
func DefaultReceiverConfig() ReceiverConfig {
	return ReceiverConfig{
		MaxUpdate: 64 << 20, MaxBuffered: 256 << 20,
		MaxOutstandingChunks: 400, MaxOutstandingBytes: 16 << 20,
		Window: 16, Lease: 15 * time.Second, Leases: 8,
	}
}

// Validate reports every field that cannot work: an update that is accepted
// must fit the memory, and a whole window what may be outstanding.
func (c ReceiverConfig) Validate() error {
	errs := []error{
		within("MaxUpdate", c.MaxUpdate, 1, wire.MaxBlob),
		within("MaxBuffered", c.MaxBuffered, max(1, c.MaxUpdate), math.MaxInt),
		within("Window", c.Window, 1, wire.MaxRanges),
		within("MaxOutstandingChunks", c.MaxOutstandingChunks, max(1, c.Window), math.MaxInt32),
		within("MaxOutstandingBytes", c.MaxOutstandingBytes, max(1, min(c.Window, wire.MaxRanges))*maxChunkMessage, math.MaxInt),
		within("Leases", c.Leases, 1, 1000),
	}
	if c.Lease < time.Second || c.Lease > time.Hour {
		errs = append(errs, fmt.Errorf("transfer: Lease is %v: must be 1s to 1h", c.Lease))
	}
	return errors.Join(errs...)
}

// ReceiveEvent is Offer, Chunk, Drop or Tick.
type ReceiveEvent interface{ receiveEvent() }

type (
	// Offer is an update's manifest, with the payload where it is inline. It
	// has been found to be the agent's and timely. Both slices are kept.
	Offer struct {
		Agent    wire.AgentID
		Boot     wire.Epoch
		Manifest wire.Manifest
		Inline   []byte
	}
	// Chunk is a message under the upload topic of an agent; Transfer is the
	// topic's ID of the update. The payload is copied, not kept.
	Chunk struct {
		Agent    wire.AgentID
		Transfer string
		Payload  []byte
	}
	// Drop forgets an agent: the round is over, the update refused or not
	// stored, the agent gone for good.
	Drop struct{ Agent wire.AgentID }
)

func (Offer) receiveEvent() {}
func (Chunk) receiveEvent() {}
func (Drop) receiveEvent()  {}

// ReceiveEffect is Grant, Complete or Refuse.
type ReceiveEffect interface{ receiveEffect() }

type (
	// Grant asks the host to send a credit to an agent.
	Grant struct {
		Agent  wire.AgentID
		Credit wire.Credit
	}
	// Complete hands over a verified update: the payload is the host's. It
	// says accepted to the agent when the update is durable, not before.
	Complete struct {
		Agent   wire.AgentID
		Digest  wire.Digest
		Payload []byte
	}
	// Refuse asks the host to refuse an update: too large, malformed, or not
	// what its hash says.
	Refuse struct {
		Agent  wire.AgentID
		Digest wire.Digest
		Reason wire.RefuseReason
	}
)

func (Grant) receiveEffect()    {}
func (Complete) receiveEffect() {}
func (Refuse) receiveEffect()   {}

// ReceiverStats shows where a Receiver stands, and counts over its life.
type ReceiverStats struct {
	Receiving, Queued  int // transfers with memory, and those that wait for it
	BufferedBytes      int
	OutstandingBytes   int
	OutstandingChunks  int
	Completed, Refused uint64 // updates
	Dropped            uint64 // transfers that made no progress for too long
	Replaced           uint64 // unfinished transfers that another offer of the agent ended
	Credits            uint64 // credits sent, repeats too
	Expired            uint64 // leases that ended with chunks missing
	Chunks             uint64 // chunks that were stored
	Duplicates         uint64 // chunks that were there already
	Wrong              uint64 // chunks that are not what their hash says
	Unknown            uint64 // chunks of no transfer that is under way
	Stale              uint64 // offers from before the agent's newest start
	Repeated           uint64 // offers of an update that is complete
}
