package transfer

import (
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// Errors with which a BlobPuller fails.
var (
	// ErrBlobTooLarge reports that the announced length exceeds the configured maximum.
	ErrBlobTooLarge = errors.New("blob is too large")
	// ErrBlobCorrupt reports that a blob does not match its announcement. A retry cannot help.
	ErrBlobCorrupt = errors.New("blob does not match its announcement")
	// ErrBlobGone reports that no part of a blob has arrived for a long time, so that the blob may have been deleted at
	// the broker. The host then reads the announcement again and sends a hello.
	ErrBlobGone = errors.New("blob is unavailable")
	// ErrStorageFailed reports that chunks could not be stored until the BlobPuller gave up.
	ErrStorageFailed = errors.New("blob could not be stored")
)

// Events that several state machines process.
type (
	// Start begins the transfer.
	Start struct{}
	// LinkUp reports that the session is connected and has subscribed again.
	LinkUp struct{}
	// LinkDown reports that the link is lost.
	LinkDown struct{}
	// Cancel ends a transfer that is no longer needed.
	Cancel struct{}
	// Tick reports that the deadline may have passed.
	Tick struct{}
)

func (Start) isPullEvent()    {}
func (LinkUp) isPullEvent()   {}
func (LinkDown) isPullEvent() {}
func (Cancel) isPullEvent()   {}
func (Tick) isPullEvent()     {}

func (Start) isSendEvent()    {}
func (LinkUp) isSendEvent()   {}
func (LinkDown) isSendEvent() {}
func (Cancel) isSendEvent()   {}
func (Tick) isSendEvent()     {}

func (Tick) isReceiveEvent() {}

// ManifestPartName is the last topic level of a manifest message. In the topic of a chunk, this level is the chunk
// number.
const ManifestPartName = "m"

// ChunkPartName returns the last topic level of chunk k.
func ChunkPartName(k int) string { return strconv.Itoa(k) }

// UploadID returns the topic level of an update's upload: the first 8 bytes of the update's digest in 16 hexadecimal
// digits. The messages of the update's chunks also contain these bytes.
func UploadID(update wire.Digest) string { return hex.EncodeToString(update[:8]) }

// jitteredDelay returns d ± 25 %, so that devices affected by the same failure do not all retry at the same moment.
func jitteredDelay(rng *rand.Rand, d time.Duration) time.Duration {
	return d - d/4 + time.Duration(rng.Int64N(int64(d)/2+1))
}
