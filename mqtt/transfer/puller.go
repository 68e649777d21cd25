package transfer

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// manifestPartNumber is the part number of the manifest; chunks have numbers from 0.
const manifestPartNumber = -1

// stallsUntilPartsMissing is the number of consecutive stalls (timeouts without a new part) after which PartsMissing is
// sent. After the first stall the broker may just be slow.
const stallsUntilPartsMissing = 2

// BlobPuller downloads one blob. It first downloads the manifest, then asks the host to open a storage, and then
// downloads the missing chunks by subscribing to a limited number (window) of chunks at a time. For a short blob it
// requests the first window together with the manifest. It keeps in memory only the manifest, one message, and chunks
// that arrived before the storage was open.
type BlobPuller struct {
	cfg     PullerConfig
	blobRef wire.BlobRef
	rng     *rand.Rand
	stats   PullerStats

	isStarted, isEnded, isConnected bool

	manifest               wire.Manifest  // manifest of the blob; empty until it has arrived
	awaitsStorage          bool           // whether the host is opening the storage
	storage                ChunkStorage   // storage of the chunks; nil until it is open
	storageError           error          // last storage error; nil if the storage works
	earlyPayloadByChunk    map[int][]byte // chunks that arrived before the storage was open
	hasChunk               []bool
	missingChunks          int
	nextChunkToRequest     int   // number of the first chunk that has not been requested yet
	requestedParts         []int // subscribed parts that have not arrived; may include manifestPartNumber
	arrivedSubscribedParts []int // parts that have arrived and are still subscribed; may include manifestPartNumber
	consecutiveStalls      int   // number of consecutive stall timeouts without a new part
	brokerLacksParts       bool
	stallTimeoutAt         time.Time
}

// NewBlobPuller returns a BlobPuller that downloads ref. It panics if cfg is invalid.
func NewBlobPuller(cfg PullerConfig, ref wire.BlobRef, rng *rand.Rand) *BlobPuller {
	if err := cfg.Validate(); err != nil {
		panic("transfer: NewBlobPuller: " + err.Error())
	}
	return &BlobPuller{cfg: cfg, blobRef: ref, rng: rng, isConnected: true, brokerLacksParts: cfg.BrokerLacksParts}
}

// BrokerLacksParts reports whether the broker failed to return the parts that were requested last. The host passes the
// result to the next BlobPuller in PullerConfig.BrokerLacksParts.
func (p *BlobPuller) BrokerLacksParts() bool { return p.brokerLacksParts }

// Stats returns the current counters.
func (p *BlobPuller) Stats() PullerStats { return p.stats }

// Deadline returns the time at which Tick must be called next. It reports false if no call is needed.
func (p *BlobPuller) Deadline() (time.Time, bool) {
	return p.stallTimeoutAt, !p.stallTimeoutAt.IsZero()
}

// Step processes one event and returns the effects to perform, in order.
func (p *BlobPuller) Step(now time.Time, ev PullEvent) []PullEffect {
	if p.isEnded {
		if late, ok := ev.(StorageOpened); ok {
			closeUnusedStorage(late.Storage)
		}
		return nil
	}
	switch ev := ev.(type) {
	case Start:
		if !p.isStarted {
			p.isStarted = true
			return p.startPull(now)
		}
	case LinkUp:
		p.isConnected = true
		p.rearmTimer(now)
	case LinkDown:
		p.isConnected = false
		p.rearmTimer(now)
		return p.unsubscribeArrivedParts()
	case PartReceived:
		if p.isStarted {
			return p.handlePart(now, ev)
		}
	case StorageOpened:
		return p.handleStorageOpened(now, ev)
	case Cancel:
		return p.endPull()
	case Tick:
		if !p.stallTimeoutAt.IsZero() && !now.Before(p.stallTimeoutAt) {
			return p.handleStall(now)
		}
	}
	return nil
}

func (p *BlobPuller) startPull(now time.Time) []PullEffect {
	switch {
	case int64(p.blobRef.Length) > int64(p.cfg.MaxBlobBytes):
		return p.endPull(PullFailed{fmt.Errorf("%w: announced length of %d bytes exceeds the limit of "+
			"%d", ErrBlobTooLarge,
			p.blobRef.Length,
			p.cfg.MaxBlobBytes)})
	case !p.blobRef.IsSet():
		return p.endPull(PullFailed{fmt.Errorf("%w: the announced length is 0", ErrBlobCorrupt)})
	case len(p.blobRef.Inline) > 0:
		return p.handleInlineBlob()
	}
	p.rearmTimer(now)
	all := []int{manifestPartNumber}
	// Request chunks together with the manifest only for a short blob, because a longer blob may already be partly
	// stored.
	if n := wire.ChunkCount(int(p.blobRef.Length)); n < 2*p.cfg.WindowChunks {
		for ; p.nextChunkToRequest < min(n, p.cfg.WindowChunks); p.nextChunkToRequest++ {
			all = append(all, p.nextChunkToRequest)
		}
	}
	return p.subscribeParts(all)
}

// rearmTimer restarts the stall timer. The timer is off without a link and while the host opens the storage.
func (p *BlobPuller) rearmTimer(now time.Time) {
	p.stallTimeoutAt = time.Time{}
	if !p.isStarted || !p.isConnected || p.awaitsStorage {
		return
	}
	wait := min(p.cfg.FirstStallTimeout<<min(p.consecutiveStalls, 30), p.cfg.MaxStallTimeout)
	if len(p.manifest.ChunkDigests) > 0 {
		wait = max(wait, 3*p.cfg.MaxChunkSendTime)
	} else {
		manifest := len(wire.Digest{}) * wire.ChunkCount(int(p.blobRef.Length))
		wait += p.cfg.MaxChunkSendTime * time.Duration(manifest) / wire.MaxMessage
	}
	p.stallTimeoutAt = now.Add(jitteredDelay(p.rng, wait))
}

func (p *BlobPuller) handlePart(now time.Time, ev PartReceived) []PullEffect {
	if ev.Retained {
		p.brokerLacksParts = false
	}
	if ev.PartName == ManifestPartName {
		return p.handleManifest(now, ev.Payload)
	}
	k, payload, err := wire.DecodeChunkMessage(ev.Payload, p.blobRef.Hash)
	switch {
	case err != nil, ev.PartName != ChunkPartName(k):
		p.stats.CorruptMessages++
		return nil
	case p.storage == nil && !slices.Contains(p.requestedParts, k):
		p.stats.IgnoredMessages++
		return nil
	case p.storage == nil:
		if p.earlyPayloadByChunk == nil {
			p.earlyPayloadByChunk = map[int][]byte{}
		}
		p.earlyPayloadByChunk[k] = payload
		p.consecutiveStalls = 0
		p.rearmTimer(now)
		return nil
	}
	if stored, effects := p.storeChunk(k, payload); !stored {
		return effects
	}
	return p.continueAfterPart(now, k)
}

// storeChunk verifies and stores a chunk. It ignores a chunk that is already stored or does not match the manifest.
func (p *BlobPuller) storeChunk(k int, payload []byte) (stored bool, effects []PullEffect) {
	switch {
	case k >= len(p.hasChunk):
		p.stats.CorruptMessages++
		return false, nil
	case p.hasChunk[k]:
		p.stats.IgnoredMessages++
		return false, nil
	}
	payload, err := openSealedChunk(p.cfg.Sealer, k, payload)
	switch {
	case err != nil, len(payload) != p.manifest.ChunkLen(k), sha256.Sum256(payload) != p.manifest.ChunkDigests[k]:
		p.stats.CorruptMessages++
		return false, nil
	}
	if err := p.storage.PutChunk(k, payload); err != nil {
		return false, p.reportStorageError(err)
	}
	p.storageError = nil
	p.hasChunk[k] = true
	p.missingChunks--
	p.stats.StoredChunks++
	return true, nil
}

func (p *BlobPuller) handleManifest(now time.Time, message []byte) []PullEffect {
	if len(p.manifest.ChunkDigests) > 0 {
		p.stats.IgnoredMessages++
		return nil
	}
	if sha256.Sum256(message) != p.blobRef.ManifestHash {
		p.stats.CorruptMessages++
		return nil
	}
	if p.cfg.Sealer != nil {
		opened, err := p.cfg.Sealer.OpenManifest(message)
		if err != nil {
			return p.endPull(PullFailed{fmt.Errorf("%w: manifest: %w", ErrBlobCorrupt, err)})
		}
		message = opened
	}
	m, err := wire.DecodeManifest(message)
	if err != nil {
		return p.endPull(PullFailed{fmt.Errorf("%w: %w", ErrBlobCorrupt, err)})
	}
	if m.Hash != p.blobRef.Hash || m.BlobLength != p.blobRef.Length {
		return p.endPull(PullFailed{fmt.Errorf("%w: manifest describes a different blob", ErrBlobCorrupt)})
	}
	p.manifest = m
	p.markPartArrived(manifestPartNumber)
	p.consecutiveStalls = 0
	return p.requestStorage(now)
}

// requestStorage makes the host open the storage.
func (p *BlobPuller) requestStorage(now time.Time) []PullEffect {
	p.awaitsStorage = true
	p.rearmTimer(now)
	return []PullEffect{OpenStorage{Manifest: p.manifest}}
}

// handleStorageOpened counts the chunks in the storage and continues with the missing chunks.
func (p *BlobPuller) handleStorageOpened(now time.Time, ev StorageOpened) []PullEffect {
	if !p.awaitsStorage {
		closeUnusedStorage(ev.Storage)
		return nil
	}
	p.awaitsStorage = false
	if ev.Err != nil {
		p.rearmTimer(now)
		return p.reportStorageError(ev.Err)
	}
	p.storage, p.storageError = ev.Storage, nil
	p.hasChunk = make([]bool, len(p.manifest.ChunkDigests))
	for k := range p.hasChunk {
		p.hasChunk[k] = p.storage.HasChunk(k)
		if p.hasChunk[k] {
			p.stats.ResumedChunks++
			p.markPartArrived(k)
		} else {
			p.missingChunks++
		}
	}
	effects := p.reportMissingParts(p.requestedParts)
	early := p.earlyPayloadByChunk
	p.earlyPayloadByChunk = nil
	for _, k := range slices.Sorted(maps.Keys(early)) {
		stored, failing := p.storeChunk(k, early[k])
		if effects = append(effects, failing...); stored {
			p.markPartArrived(k)
		}
	}
	return append(effects, p.continueAfterPart(now, manifestPartNumber)...)
}

// markPartArrived records that a requested part has arrived.
func (p *BlobPuller) markPartArrived(k int) {
	if i := slices.Index(p.requestedParts, k); i >= 0 {
		p.requestedParts = slices.Delete(p.requestedParts, i, i+1)
		p.arrivedSubscribedParts = append(p.arrivedSubscribedParts, k)
	}
}

// reportStorageError records a storage error. It reports the error to the host only if the previous storage attempt
// succeeded.
func (p *BlobPuller) reportStorageError(err error) []PullEffect {
	p.stats.StorageFailures++
	told := p.storageError != nil
	if p.storageError = err; told {
		return nil
	}
	return []PullEffect{StorageFailed{Err: err}}
}

// continueAfterPart completes the transfer after the last part has arrived, or requests more chunks.
func (p *BlobPuller) continueAfterPart(now time.Time, k int) []PullEffect {
	p.consecutiveStalls = 0
	p.rearmTimer(now)
	p.markPartArrived(k)
	if p.missingChunks == 0 {
		data := p.storage
		p.storage = nil
		return p.endPull(PullDone{data})
	}
	if p.nextChunkToRequest == len(p.hasChunk) || 2*len(p.requestedParts) > p.cfg.WindowChunks {
		return nil
	}
	var effects []PullEffect
	if 2*len(p.arrivedSubscribedParts) >= p.cfg.WindowChunks {
		effects = p.unsubscribeArrivedParts()
	}
	var more []int
	for ; len(p.requestedParts)+len(p.arrivedSubscribedParts)+len(more) < p.cfg.WindowChunks &&
		p.nextChunkToRequest < len(p.hasChunk); p.nextChunkToRequest++ {
		if !p.hasChunk[p.nextChunkToRequest] {
			more = append(more, p.nextChunkToRequest)
		}
	}
	return append(effects, p.subscribeParts(more)...)
}

// unsubscribeArrivedParts ends the subscriptions to parts that have arrived, because after a reconnect the broker would
// send these parts again.
func (p *BlobPuller) unsubscribeArrivedParts() []PullEffect {
	if len(p.arrivedSubscribedParts) == 0 {
		return nil
	}
	names := partNames(p.arrivedSubscribedParts)
	p.arrivedSubscribedParts = nil
	return []PullEffect{UnsubscribeParts{names}}
}

// handleStall subscribes to the missing parts again, so that the broker sends its retained messages again. While the
// manifest is missing, it subscribes only to the manifest, because the manifest is needed first.
func (p *BlobPuller) handleStall(now time.Time) []PullEffect {
	p.consecutiveStalls++
	p.stats.Stalls++
	switch {
	case p.consecutiveStalls >= p.cfg.MaxStalls && p.storageError != nil:
		return p.endPull(PullFailed{fmt.Errorf("%w: %w", ErrStorageFailed, p.storageError)})
	case p.consecutiveStalls >= p.cfg.MaxStalls:
		return p.endPull(PullFailed{fmt.Errorf("%w: no progress in %d attempts, %d of %d chunks missing",
			ErrBlobGone, p.consecutiveStalls, p.missingChunks, len(p.hasChunk))})
	case p.storage == nil && len(p.manifest.ChunkDigests) > 0:
		return p.requestStorage(now)
	}
	p.rearmTimer(now)
	again := p.requestedParts
	if len(p.manifest.ChunkDigests) == 0 {
		again = []int{manifestPartNumber}
	}
	names := partNames(again)
	p.brokerLacksParts = p.brokerLacksParts || p.consecutiveStalls >= stallsUntilPartsMissing && p.storageError == nil
	return append(append(p.unsubscribeArrivedParts(), UnsubscribeParts{names}, SubscribeParts{names}),
		p.reportMissingParts(again)...)
}

func (p *BlobPuller) reportMissingParts(ks []int) []PullEffect {
	if !p.brokerLacksParts {
		return nil
	}
	var e PartsMissing
	for _, k := range slices.Sorted(slices.Values(ks)) {
		if k == manifestPartNumber {
			e.ManifestMissing = true
		} else if _, early := p.earlyPayloadByChunk[k]; !early {
			e.Chunks = append(e.Chunks, k)
		}
	}
	if !e.ManifestMissing && len(e.Chunks) == 0 {
		return nil
	}
	return []PullEffect{e}
}

func (p *BlobPuller) subscribeParts(ks []int) []PullEffect {
	if len(ks) == 0 {
		return nil
	}
	p.requestedParts = append(p.requestedParts, ks...)
	return append([]PullEffect{SubscribeParts{partNames(ks)}}, p.reportMissingParts(ks)...)
}

// handleInlineBlob verifies a blob that is inside the announcement.
func (p *BlobPuller) handleInlineBlob() []PullEffect {
	if len(p.blobRef.Inline) != int(p.blobRef.Length) || wire.BlobDigest(p.blobRef.Inline) != p.blobRef.Hash {
		return p.endPull(PullFailed{fmt.Errorf("%w: inline content does not match length and hash",
			ErrBlobCorrupt)})
	}
	return p.endPull(PullDone{inlineBlobStorage(p.blobRef.Inline)})
}

// endPull ends all subscriptions and closes the storage.
func (p *BlobPuller) endPull(last ...PullEffect) []PullEffect {
	p.arrivedSubscribedParts = append(p.arrivedSubscribedParts, p.requestedParts...)
	effects := p.unsubscribeArrivedParts()
	closeUnusedStorage(p.storage)
	p.isEnded, p.stallTimeoutAt = true, time.Time{}
	p.storage, p.hasChunk, p.requestedParts, p.earlyPayloadByChunk, p.manifest = nil, nil, nil, nil, wire.Manifest{}
	return append(effects, last...)
}

func partNames(ks []int) []string {
	names := make([]string, len(ks))
	for i, k := range ks {
		names[i] = ChunkPartName(k)
		if k == manifestPartNumber {
			names[i] = ManifestPartName
		}
	}
	return names
}
