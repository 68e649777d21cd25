package transfer

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// maxChunkMessage is the longest message of a chunk, in bytes.
const maxChunkMessage = wire.ChunkHeaderSize + wire.MaxChunk + wire.SealOverhead

// ReceiverConfig is the policy of a Receiver.
type ReceiverConfig struct {
	MaxUpdate        int // longest update that is accepted, in bytes
	MaxBufferedBytes int // sum of the lengths of the updates that are received or being stored, in bytes

	// Chunks that are lent and have not come, over all agents: what may stand
	// in the broker's queue for the coordinator. Half of Mosquitto's 1,000
	// messages are for chunks, less a fifth of it for control messages, and half
	// of the embedded broker's 8 MiB: who lets more wait there is disconnected.
	MaxOutstandingChunks int
	MaxOutstandingBytes  int

	WindowChunks   int           // chunks lent to one agent at a time
	LeaseDuration  time.Duration // of a credit
	MaxEmptyLeases int           // leases in a row without a chunk, until a transfer is dropped
}

// DefaultReceiverConfig returns the defaults.
func DefaultReceiverConfig() ReceiverConfig {
	return ReceiverConfig{
		MaxUpdate: 64 << 20, MaxBufferedBytes: 256 << 20,
		MaxOutstandingChunks: 400, MaxOutstandingBytes: 4 << 20,
		WindowChunks: 16, LeaseDuration: 15 * time.Second, MaxEmptyLeases: 8,
	}
}

// Validate reports every field that cannot work: an update that is accepted
// must fit the memory, and a whole window what may be outstanding.
func (c ReceiverConfig) Validate() error {
	errs := []error{
		checkRange("MaxUpdate", c.MaxUpdate, 1, wire.MaxBlob),
		checkRange("MaxBuffered", c.MaxBufferedBytes, max(1, c.MaxUpdate), math.MaxInt),
		checkRange("Window", c.WindowChunks, 1, wire.MaxRanges),
		checkRange("MaxOutstandingChunks", c.MaxOutstandingChunks, max(1, c.WindowChunks), math.MaxInt32),
		checkRange("MaxOutstandingBytes", c.MaxOutstandingBytes, max(1, min(c.WindowChunks,
			wire.MaxRanges))*maxChunkMessage,
			math.MaxInt),
		checkRange("Leases", c.MaxEmptyLeases, 1, 1000),
	}
	if c.LeaseDuration < time.Second || c.LeaseDuration > time.Hour {
		errs = append(errs, fmt.Errorf("transfer: Lease is %v: must be 1s to 1h", c.LeaseDuration))
	}
	return errors.Join(errs...)
}

// ReceiveEvent is Offer, Opened, Chunk, Stored, Drop or Tick.
type ReceiveEvent interface{ receiveEvent() }

type (
	// UpdateOffer is an update's manifest, with the payload where it is inline. It
	// has been found to be the agent's and timely. Both slices are kept.
	UpdateOffer struct {
		Agent             wire.AgentID
		Boot              wire.Epoch
		Manifest          wire.Manifest
		Seal              *wire.BlobSeal // of the chunks; nil = they are open
		Inline            []byte
		UnsolicitedChunks int // chunks, the first ones, that come without having been lent
	}
	// ChunkReceived is a message under the upload topic of an agent; Transfer is the
	// topic's ID of the update. The payload goes to the storage, which may keep
	// it: nobody writes to it any more. A sealed one is opened in its place.
	ChunkReceived struct {
		Agent    wire.AgentID
		Transfer string
		Payload  []byte
	}
	// UpdateStored gives back the room of the agent's complete update: it is on disk,
	// or thrown away. It answers each Complete, and says nothing about success.
	UpdateStored struct{ Agent wire.AgentID }
	// DropAgent forgets an agent: the round is over, the update refused or not
	// stored, the agent gone for good.
	DropAgent struct{ Agent wire.AgentID }
)

func (UpdateOffer) receiveEvent()   {}
func (ChunkReceived) receiveEvent() {}
func (DropAgent) receiveEvent()     {}
func (UpdateStored) receiveEvent()  {}

// ReceiveEffect is Open, Unstored, Grant, Complete or Refuse.
type ReceiveEffect interface{ receiveEffect() }

type (
	// GrantCredit asks the host to send a credit to an agent.
	GrantCredit struct {
		Agent  wire.AgentID
		Credit wire.Credit
	}
	// UpdateComplete hands over the storage of an update whose chunks are all there, a
	// *Memory if it was inline. The host holds the whole against its digest, where
	// it was not inline, stores it, says accepted to the agent when it is durable,
	// and steps Stored. Until then offers of the agent are passed over.
	UpdateComplete struct {
		Agent  wire.AgentID
		Digest wire.Digest
		Data   Storage
	}
	// RefuseUpdate asks the host to refuse an update: too large, malformed, or inline
	// and not what its hash says.
	RefuseUpdate struct {
		Agent  wire.AgentID
		Digest wire.Digest
		Reason wire.UpdateRefusalReason
	}
)

func (GrantCredit) receiveEffect()    {}
func (UpdateComplete) receiveEffect() {}
func (RefuseUpdate) receiveEffect()   {}

// ReceiverStats shows where a Receiver stands, and counts over its life.
type ReceiverStats struct {
	ActiveTransfers, Queued int // transfers with room, and those that wait for it
	StoringUpdates          int // complete updates that the host has not stored yet
	BufferedBytes           int
	OutstandingBytes        int
	OutstandingChunks       int
	Completed, Refused      uint64 // updates
	DroppedTransfers        uint64 // transfers that made no progress for too long
	ReplacedTransfers       uint64 // unfinished transfers that another offer of the agent ended
	Credits                 uint64 // credits sent, repeats too
	ExpiredLeases           uint64 // leases that ended with chunks missing
	StoredChunks            uint64 // chunks that were stored
	ResumedChunks           uint64 // chunks that were in a storage when it was opened
	StorageFailures         uint64 // failures of a storage
	Duplicates              uint64 // chunks that were there already
	CorruptChunks           uint64 // chunks that are not what their hash says
	UnknownChunks           uint64 // chunks of no transfer that is under way
	StaleOffers             uint64 // offers from before the agent's newest start
	RepeatedOffers          uint64 // offers passed over: of a complete update, while one is stored, inline without room
}
