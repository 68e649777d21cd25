package transfer

import (
	"errors"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// PullerConfig is the policy of a BlobPuller.
type PullerConfig struct {
	MaxBlobBytes int // longest blob that is accepted, in bytes
	WindowChunks int // chunks subscribed to at a time
	// without progress, ± 25 %, until the window is asked for again; it doubles up to Timeout
	FirstStallTimeout time.Duration
	MaxStallTimeout   time.Duration
	MaxChunkSendTime  time.Duration // that a chunk takes at most: such times leave room for three, or for the manifest
	MaxStalls         int           // timeouts in a row until the blob is taken for gone
	// BrokerLacksParts tells that the broker did not return the parts of the blob before, so that they are asked for at
	// once.
	BrokerLacksParts bool
	// Sealer opens manifest and chunks; nil = they are open.
	Sealer *wire.BlobSealer
}

// DefaultPullerConfig returns the defaults: a window is one SUBSCRIBE of the
// strictest managed broker; a blob is gone after 65 s.
func DefaultPullerConfig() PullerConfig {
	return PullerConfig{MaxBlobBytes: wire.MaxBlobBytes, WindowChunks: 8, FirstStallTimeout: time.Second,
		MaxStallTimeout: 10 * time.Second,
		MaxStalls:       9}
}

// Validate reports every field that cannot work.
func (c PullerConfig) Validate() error {
	return errors.Join(
		checkIntRange("MaxBytes", c.MaxBlobBytes, 1, wire.MaxBlobBytes),
		checkIntRange("Window", c.WindowChunks, 1, wire.MaxBlobChunks),
		checkPositiveDuration("First", c.FirstStallTimeout),
		checkPositiveDuration("Timeout", c.MaxStallTimeout),
		checkIntRange("Attempts", c.MaxStalls, 1, 1000),
	)
}

func checkIntRange(field string, x, least, most int) error {
	if x < least || x > most {
		return fmt.Errorf("%s is %d: must be %d to %d", field, x, least, most)
	}
	return nil
}

func checkPositiveDuration(field string, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%s is %v: must be positive", field, d)
	}
	return nil
}

// PullEvent is Start, Connected, Disconnected, PartReceived, StorageOpened, Cancel or Tick.
type PullEvent interface{ isPullEvent() }

// PartReceived is a message of the blob: PartName is its topic's last level. The payload
// goes to the storage, which may keep it: nobody writes to it any more. A sealed
// one is opened in its place.
type PartReceived struct {
	PartName string
	Payload  []byte
	Retained bool // the broker has returned it; else it was published just now
}

func (PartReceived) isPullEvent() {}

// PullEffect is Subscribe, Unsubscribe, PartsMissing, OpenStorage, StorageFailed, PullDone or PullFailed.
type PullEffect interface{ isPullEffect() }

type (
	// SubscribeParts asks for the retained messages of these parts.
	SubscribeParts struct{ Parts []string }
	// UnsubscribeParts ends the subscriptions to these parts.
	UnsubscribeParts struct{ Parts []string }
	// PartsMissing says that the broker does not return parts, or is not expected to. The coordinator may publish them
	// once more, if it is told. A node of a cluster may return nothing new for as long as another one is away.
	PartsMissing struct {
		ManifestMissing bool
		Chunks          []int // ascending
	}
	// PullDone ends the transfer and hands the storage over: the one that was opened,
	// or a *MemoryChunkStorage with the reference's own slice of an inline blob. Each chunk was
	// what the manifest says when it came, and so the whole is right in memory; a
	// file the host holds against the blob's hash when it reads it.
	PullDone struct{ Storage ChunkStorage }
	// PullFailed ends the transfer with ErrBlobTooLarge, ErrBlobCorrupt, ErrBlobGone or ErrStorageFailed.
	PullFailed struct{ Err error }
)

func (SubscribeParts) isPullEffect()   {}
func (UnsubscribeParts) isPullEffect() {}
func (PartsMissing) isPullEffect()     {}
func (PullDone) isPullEffect()         {}
func (PullFailed) isPullEffect()       {}

// PullerStats counts what came over a BlobPuller's life.
type PullerStats struct {
	StoredChunks    uint64 // chunks that were stored
	ResumedChunks   uint64 // chunks that were in the storage at the beginning
	StorageFailures uint64 // failures of the storage
	CorruptMessages uint64 // messages that are not what their hash says
	IgnoredMessages uint64 // messages that came twice or before they could be checked
	Stalls          uint64 // timeouts without progress
}
