package transfer

import (
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// Why a BlobPuller failed.
var (
	// ErrBlobTooLarge: the announced length is over the puller's policy.
	ErrBlobTooLarge = errors.New("blob is too large")
	// ErrBlobCorrupt: what the announcement names contradicts itself, so that
	// asking again cannot help.
	ErrBlobCorrupt = errors.New("blob contradicts its announcement")
	// ErrBlobGone: nothing useful came for long; the blob may have been deleted.
	// The host reads the announcement again and says hello.
	ErrBlobGone = errors.New("blob is gone")
	// ErrStorageFailed: the storage failed for as long as a blob may be missing.
	ErrStorageFailed = errors.New("blob could not be stored")
)

// Events that more than one machine takes.
type (
	// Start begins the transfer.
	Start struct{}
	// LinkUp says that the session stands again and has re-subscribed.
	LinkUp struct{}
	// LinkDown says that the link is lost.
	LinkDown struct{}
	// Cancel ends a transfer that is no longer wanted.
	Cancel struct{}
	// Tick says that the deadline may have passed.
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

// ManifestPartName is the last topic level of a manifest, where a chunk has its number.
const ManifestPartName = "m"

// ChunkPartName returns the last topic level of chunk k.
func ChunkPartName(k int) string { return strconv.Itoa(k) }

// UploadID returns how topics name the upload of an update: the first 8 bytes of
// its digest, which its chunks carry too, in 16 hexadecimal digits.
func UploadID(update wire.Digest) string { return hex.EncodeToString(update[:8]) }

// jitteredDelay returns d ± 25 %, so that devices that lost the same thing at the
// same moment do not all ask again at the same moment.
func jitteredDelay(rng *rand.Rand, d time.Duration) time.Duration {
	return d - d/4 + time.Duration(rng.Int64N(int64(d)/2+1))
}
