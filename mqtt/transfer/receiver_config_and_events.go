package transfer

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// maxChunkMessageBytes is the maximum length in bytes of a chunk message.
const maxChunkMessageBytes = wire.ChunkHeaderSize + wire.MaxChunkBytes + wire.SealOverhead

// ReceiverConfig configures an UpdateReceiver.
type ReceiverConfig struct {
	MaxUpdateBytes   int // maximum length of an update in bytes
	MaxBufferedBytes int // total length in bytes of all updates that are being received or stored

	// MaxOutstandingChunks and MaxOutstandingBytes limit the chunks of all agents that were credited and have not
	// arrived. All of them may be in the broker's queue for the coordinator. 400 chunks are half of Mosquitto's queue
	// of 1,000 messages, less a fifth for control messages. The embedded broker's queue has 8 MiB; a client that
	// exceeds it is disconnected.
	MaxOutstandingChunks int
	MaxOutstandingBytes  int

	WindowChunks   int           // maximum number of chunks credited to one agent at a time
	LeaseDuration  time.Duration // time after which a credit expires if no chunk arrives
	MaxEmptyLeases int           // number of consecutive leases without a chunk after which a transfer is dropped
}

// DefaultReceiverConfig returns the default configuration.
func DefaultReceiverConfig() ReceiverConfig {
	return ReceiverConfig{
		MaxUpdateBytes: 64 << 20, MaxBufferedBytes: 256 << 20,
		MaxOutstandingChunks: 400, MaxOutstandingBytes: 4 << 20,
		WindowChunks: 16, LeaseDuration: 15 * time.Second, MaxEmptyLeases: 8,
	}
}

// Validate returns an error that lists all invalid fields. The largest accepted update must fit into MaxBufferedBytes,
// and a full window into MaxOutstandingChunks and MaxOutstandingBytes.
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
		errs = append(errs, fmt.Errorf("LeaseDuration is %v: must be between 1s and 1h", c.LeaseDuration))
	}
	return errors.Join(errs...)
}

// ReceiveEvent is the type of events that an UpdateReceiver processes: UpdateOffer, StorageOpened, ChunkReceived,
// UpdateReleased, DropAgent and Tick.
type ReceiveEvent interface{ isReceiveEvent() }

type (
	// UpdateOffer is the manifest of an update, with the payload if it is inline. The host has checked the sender and
	// the timeliness of the offer. The receiver keeps both slices.
	UpdateOffer struct {
		Agent             wire.AgentID
		AgentBootEpoch    wire.Epoch
		Manifest          wire.Manifest
		Sealer            *wire.BlobSealer // decrypts the chunks; nil = the chunks are not encrypted
		InlinePayload     []byte
		UnsolicitedChunks int // number of leading chunks that the agent sends without a credit
	}
	// ChunkReceived is a message under the upload topic of an agent. UploadID is the topic level of the update. The
	// receiver takes ownership of the payload; it may pass it to the storage or decrypt it in place.
	ChunkReceived struct {
		Agent    wire.AgentID
		UploadID string
		Payload  []byte
	}
	// UpdateReleased reports that the host no longer holds the agent's complete update, because it stored or discarded
	// it. The host sends it for each UpdateComplete.
	UpdateReleased struct{ Agent wire.AgentID }
	// DropAgent removes all state of an agent: the round is over, the update was refused or not stored, or the agent
	// has left.
	DropAgent struct{ Agent wire.AgentID }
)

func (UpdateOffer) isReceiveEvent()    {}
func (ChunkReceived) isReceiveEvent()  {}
func (DropAgent) isReceiveEvent()      {}
func (UpdateReleased) isReceiveEvent() {}

// ReceiveEffect is an action that the host of an UpdateReceiver must perform: OpenStorage, StorageFailed, GrantCredit,
// UpdateComplete or RefuseUpdate.
type ReceiveEffect interface{ isReceiveEffect() }

type (
	// GrantCredit makes the host send a credit to an agent.
	GrantCredit struct {
		Agent  wire.AgentID
		Credit wire.ChunkCredit
	}
	// UpdateComplete passes the storage of a complete update to the host. Up to 1 MiB it is a *MemoryChunkStorage.
	// Every chunk matched its hash, and DecodeUpdate has checked the chunks' hashes against the digest. The host checks
	// the values, stores them without a sync, and sends UpdateReleased. Until then the agent's offers are ignored.
	UpdateComplete struct {
		Agent   wire.AgentID
		Digest  wire.Digest
		Storage ChunkStorage
	}
	// RefuseUpdate makes the host refuse an update because it is too large, malformed, or inline with a wrong hash.
	RefuseUpdate struct {
		Agent  wire.AgentID
		Digest wire.Digest
		Reason wire.UpdateRefusalReason
	}
)

func (GrantCredit) isReceiveEffect()    {}
func (UpdateComplete) isReceiveEffect() {}
func (RefuseUpdate) isReceiveEffect()   {}

// ReceiverStats holds the state and the counters of an UpdateReceiver.
type ReceiverStats struct {
	ActiveTransfers, QueuedTransfers int
	StoringUpdates                   int // complete updates that the host has not stored yet
	BufferedBytes                    int
	OutstandingBytes                 int
	OutstandingChunks                int
	CompletedUpdates, RefusedUpdates uint64
	DroppedTransfers                 uint64 // transfers dropped after a long time without progress
	ReplacedTransfers                uint64 // unfinished transfers that were replaced by an offer of a different update
	SentCredits                      uint64 // sent credits, including repeats
	ExpiredLeases                    uint64 // number of leases that ended while chunks were missing
	StoredChunks                     uint64
	ResumedChunks                    uint64 // chunks that were already in a storage when it was opened
	StorageFailures                  uint64
	DuplicateChunks                  uint64 // number of chunks received more than once
	CorruptChunks                    uint64 // chunks that do not match their hash
	UnknownChunks                    uint64 // number of chunks received without an active transfer
	StaleOffers                      uint64 // offers that the agent sent before its latest start
	// IgnoredOffers is the number of offers that were ignored because the update is complete, another update is being
	// stored, or space is missing.
	IgnoredOffers uint64
}
