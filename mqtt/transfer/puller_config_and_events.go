package transfer

import (
	"errors"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// PullerConfig configures a BlobPuller.
type PullerConfig struct {
	MaxBlobBytes int // maximum length of a blob in bytes
	WindowChunks int // maximum number of chunks that are subscribed at a time
	// FirstStallTimeout is the time without progress, ± 25 %, after which missing parts are requested again. It doubles
	// up to MaxStallTimeout.
	FirstStallTimeout time.Duration
	MaxStallTimeout   time.Duration
	// MaxChunkSendTime is the maximum time that the link needs for one chunk; 0 means that the link rate is unlimited.
	MaxChunkSendTime time.Duration
	// MaxStalls is the number of consecutive stall timeouts after which the blob is considered deleted (ErrBlobGone).
	MaxStalls int
	// BrokerLacksParts reports that the broker did not return parts of the previous blob. The parts are then requested
	// from the coordinator immediately.
	BrokerLacksParts bool
	// Sealer decrypts the manifest and chunks; nil means that they are not encrypted.
	Sealer *wire.BlobSealer
}

// DefaultPullerConfig returns the default configuration. A window of chunks fits into one SUBSCRIBE packet of the
// strictest managed broker. A blob is considered deleted after 65 s.
func DefaultPullerConfig() PullerConfig {
	return PullerConfig{MaxBlobBytes: wire.MaxBlobBytes, WindowChunks: 8, FirstStallTimeout: time.Second,
		MaxStallTimeout: 10 * time.Second,
		MaxStalls:       9}
}

// Validate returns an error that lists all invalid fields.
func (c PullerConfig) Validate() error {
	return errors.Join(
		checkIntRange("MaxBlobBytes", c.MaxBlobBytes, 1, wire.MaxBlobBytes),
		checkIntRange("WindowChunks", c.WindowChunks, 1, wire.MaxBlobChunks),
		checkPositiveDuration("FirstStallTimeout", c.FirstStallTimeout),
		checkPositiveDuration("MaxStallTimeout", c.MaxStallTimeout),
		checkIntRange("MaxStalls", c.MaxStalls, 1, 1000),
	)
}

func checkIntRange(field string, x, least, most int) error {
	if x < least || x > most {
		return fmt.Errorf("%s is %d: must be between %d and %d", field, x, least, most)
	}
	return nil
}

func checkPositiveDuration(field string, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%s is %v: must be positive", field, d)
	}
	return nil
}

// PullEvent is the type of events that a BlobPuller processes: Start, LinkUp, LinkDown, PartReceived, StorageOpened,
// Cancel and Tick.
type PullEvent interface{ isPullEvent() }

// PartReceived is a received message of the blob. PartName is the last level of its topic. The puller takes ownership
// of the payload; it may pass it to the storage or decrypt it in place.
type PartReceived struct {
	PartName string
	Payload  []byte
	Retained bool // whether the message was retained by the broker, in contrast to a newly published message
}

func (PartReceived) isPullEvent() {}

// PullEffect is an action that the host of a BlobPuller must perform: SubscribeParts, UnsubscribeParts, PartsMissing,
// OpenStorage, StorageFailed, PullDone or PullFailed.
type PullEffect interface{ isPullEffect() }

type (
	// SubscribeParts requests the retained messages of the given parts.
	SubscribeParts struct{ Parts []string }
	// UnsubscribeParts ends the subscriptions to the given parts.
	UnsubscribeParts struct{ Parts []string }
	// PartsMissing reports parts that the broker does not return, or is not expected to return. The host may ask the
	// coordinator to publish these parts again. A cluster node may be unable to return new messages while another node
	// is unavailable.
	PartsMissing struct {
		ManifestMissing bool
		Chunks          []int // chunk numbers in ascending order
	}
	// PullDone ends the transfer and passes the storage to the host: the opened storage, or a *MemoryChunkStorage for
	// an inline blob. Each chunk was verified against the manifest when it arrived. If the blob is in a file, the host
	// verifies its hash when it reads the file.
	PullDone struct{ Storage ChunkStorage }
	// PullFailed ends the transfer with ErrBlobTooLarge, ErrBlobCorrupt, ErrBlobGone or ErrStorageFailed.
	PullFailed struct{ Err error }
)

func (SubscribeParts) isPullEffect()   {}
func (UnsubscribeParts) isPullEffect() {}
func (PartsMissing) isPullEffect()     {}
func (PullDone) isPullEffect()         {}
func (PullFailed) isPullEffect()       {}

// PullerStats holds the counters of a BlobPuller.
type PullerStats struct {
	StoredChunks    uint64
	ResumedChunks   uint64 // chunks that were already in the storage at the start
	StorageFailures uint64
	CorruptMessages uint64 // messages that are malformed or do not match their hash
	IgnoredMessages uint64 // duplicate messages, or messages that arrived before they could be verified
	Stalls          uint64 // number of timeouts during which no part arrived
}
