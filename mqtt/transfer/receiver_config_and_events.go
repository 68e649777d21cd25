package transfer

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// maxChunkMessageBytes is the longest message of a chunk, in bytes.
const maxChunkMessageBytes = wire.ChunkHeaderSize + wire.MaxChunkBytes + wire.SealOverhead

// ReceiverConfig is the policy of an UpdateReceiver.
type ReceiverConfig struct {
	MaxUpdateBytes   int // longest update that is accepted, in bytes
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
		MaxUpdateBytes: 64 << 20, MaxBufferedBytes: 256 << 20,
		MaxOutstandingChunks: 400, MaxOutstandingBytes: 4 << 20,
		WindowChunks: 16, LeaseDuration: 15 * time.Second, MaxEmptyLeases: 8,
	}
}

// Validate reports every field that cannot work: an update that is accepted
// must fit the memory, and a whole window what may be outstanding.
func (c ReceiverConfig) Validate() error {
	errs := []error{
		checkIntRange("MaxUpdateBytes", c.MaxUpdateBytes, 1, wire.MaxBlobBytes),
		checkIntRange("MaxBufferedBytes", c.MaxBufferedBytes, max(1, c.MaxUpdateBytes), math.MaxInt),
		checkIntRange("WindowChunks", c.WindowChunks, 1, wire.MaxCreditRanges),
		checkIntRange("MaxOutstandingChunks", c.MaxOutstandingChunks, max(1, c.WindowChunks), math.MaxInt32),
		checkIntRange("MaxOutstandingBytes", c.MaxOutstandingBytes, max(1, min(c.WindowChunks,
			wire.MaxCreditRanges))*maxChunkMessageBytes,
			math.MaxInt),
		checkIntRange("MaxEmptyLeases", c.MaxEmptyLeases, 1, 1000),
	}
	if c.LeaseDuration < time.Second || c.LeaseDuration > time.Hour {
		errs = append(errs, fmt.Errorf("transfer: Lease is %v: must be 1s to 1h", c.LeaseDuration))
	}
	return errors.Join(errs...)
}

// ReceiveEvent is UpdateOffer, StorageOpened, ChunkReceived, UpdateReleased, DropAgent or Tick.
type ReceiveEvent interface{ isReceiveEvent() }

type (
	// UpdateOffer is an update's manifest, with the payload where it is inline. It
	// has been found to be the agent's and timely. Both slices are kept.
	UpdateOffer struct {
		Agent             wire.AgentID
		AgentBootEpoch    wire.Epoch
		Manifest          wire.Manifest
		Sealer            *wire.BlobSealer // of the chunks; nil = they are open
		InlinePayload     []byte
		UnsolicitedChunks int // chunks, the first ones, that come without having been lent
	}
	// ChunkReceived is a message under the upload topic of an agent; UploadID is the
	// topic's ID of the update. The payload goes to the storage, which may keep
	// it: nobody writes to it any more. A sealed one is opened in its place.
	ChunkReceived struct {
		Agent    wire.AgentID
		UploadID string
		Payload  []byte
	}
	// UpdateReleased: the host no longer holds the agent's complete update, whether it stored it or threw it away. It
	// answers each UpdateComplete.
	UpdateReleased struct{ Agent wire.AgentID }
	// DropAgent forgets an agent: the round is over, the update refused or not
	// stored, the agent gone for good.
	DropAgent struct{ Agent wire.AgentID }
)

func (UpdateOffer) isReceiveEvent()    {}
func (ChunkReceived) isReceiveEvent()  {}
func (DropAgent) isReceiveEvent()      {}
func (UpdateReleased) isReceiveEvent() {}

// ReceiveEffect is OpenStorage, StorageFailed, GrantCredit, UpdateComplete or RefuseUpdate.
type ReceiveEffect interface{ isReceiveEffect() }

type (
	// GrantCredit asks the host to send a credit to an agent.
	GrantCredit struct {
		Agent  wire.AgentID
		Credit wire.ChunkCredit
	}
	// UpdateComplete hands over the storage of a complete update, a *MemoryChunkStorage up to 1 MiB. Every chunk was
	// compared with its hash, and DecodeUpdate has compared the chunks' hashes with the digest. The host checks the
	// values, stores them without a sync, and steps UpdateReleased. Until then offers of the agent are ignored.
	UpdateComplete struct {
		Agent   wire.AgentID
		Digest  wire.Digest
		Storage ChunkStorage
	}
	// RefuseUpdate asks the host to refuse an update: too large, malformed, or inline
	// and not what its hash says.
	RefuseUpdate struct {
		Agent  wire.AgentID
		Digest wire.Digest
		Reason wire.UpdateRefusalReason
	}
)

func (GrantCredit) isReceiveEffect()    {}
func (UpdateComplete) isReceiveEffect() {}
func (RefuseUpdate) isReceiveEffect()   {}

// ReceiverStats shows where an UpdateReceiver stands, and counts over its life.
type ReceiverStats struct {
	ActiveTransfers, QueuedTransfers int // transfers with room, and those that wait for it
	StoringUpdates                   int // complete updates that the host has not stored yet
	BufferedBytes                    int
	OutstandingBytes                 int
	OutstandingChunks                int
	CompletedUpdates, RefusedUpdates uint64 // updates
	DroppedTransfers                 uint64 // transfers that made no progress for too long
	ReplacedTransfers                uint64 // unfinished transfers that another offer of the agent ended
	SentCredits                      uint64 // credits sent, repeats too
	ExpiredLeases                    uint64 // leases that ended with chunks missing
	StoredChunks                     uint64 // chunks that were stored
	ResumedChunks                    uint64 // chunks that were in a storage when it was opened
	StorageFailures                  uint64 // failures of a storage
	DuplicateChunks                  uint64 // chunks that were there already
	CorruptChunks                    uint64 // chunks that are not what their hash says
	UnknownChunks                    uint64 // chunks of no transfer that is under way
	StaleOffers                      uint64 // offers from before the agent's newest start
	// offers passed over: of a complete update, while one is stored, inline without room
	IgnoredOffers uint64
}
