// Package fetch fetches tasks, base models and model files from the broker, and stores the group keys that decrypt
// them. Training, prediction and evaluation share one Fetcher.
package fetch

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// BlobPurpose is the purpose for which a blob is fetched. The Fetcher fetches at most one blob per purpose at a time.
type BlobPurpose uint8

// Purposes of blobs.
const (
	Task      BlobPurpose = iota
	Model                 // a base model, for training, prediction or evaluation
	ModelFile             // model file that the coordinator releases for predictions

	purposeCount = iota
)

// FileName returns the name of the file in the state folder that stores a large blob of this purpose.
func (p BlobPurpose) FileName() string {
	return [...]string{Task: "task.part", Model: "model.part", ModelFile: "file.part"}[p]
}

// Config contains the limits of a Fetcher.
type Config struct {
	MaxBytes      int               // maximum length of a blob in bytes
	MinUplinkRate transfer.LinkRate // minimum rate of the uplink, in bytes per second
	// NeedsModelsOutsideRounds is true if the agent requests missing models even while it does not participate in a
	// round.
	NeedsModelsOutsideRounds bool
}

// Fetcher is the part of an agent that fetches blobs.
type Fetcher struct {
	core                      *part.AgentCore
	cfg                       Config
	onAcceptanceByCoordinator func()

	fetchByPurpose [purposeCount]*blobFetch // current transfer for each purpose; nil means that there is none
	missingParts   wire.MissingBlobParts    // missing blob parts to request in the next hello message
	// hadUnavailableParts is true if the broker lacked parts of the previous blob, so that the coordinator had to
	// publish the blob again.
	hadUnavailableParts bool
	groupKeys           []wire.SealKey // keys that decrypt blobs, newest first; at most maxGroupKeys
	nextKeyRequestAt    time.Time      // time at which the next hello message must request a group key
	keyRequestInterval  time.Duration
	isKeyWaitReported   bool // whether the event GroupKeyAwaited was emitted
}

// blobFetch is the state of the transfer of one blob.
type blobFetch struct {
	*transfer.BlobPuller // nil while the group key that decrypts the blob is missing
	ref                  wire.BlobRef
	purpose              BlobPurpose
	failedAttempts       int // number of earlier attempts to fetch the blob
	done                 func(*Blob, error)
}

// New returns a Fetcher with the group keys saved on disk. The function accepted is called when the coordinator sends a
// group key, because this shows that the coordinator accepts the agent's messages.
func New(core *part.AgentCore, cfg Config, accepted func()) (f *Fetcher, err error) {
	f = &Fetcher{core: core, cfg: cfg, onAcceptanceByCoordinator: accepted}
	f.groupKeys, err = loadGroupKeys(core.StateFolder)
	return f, err
}

// ErrCanceled is the error of a transfer that was cancelled or replaced by a transfer for the same purpose.
var ErrCanceled = errors.New("transfer cancelled: the model or task is no longer needed")

// maxRetries is the maximum number of retries if the broker lacks a model. Tasks are retried without limit until
// another task is announced.
const maxRetries = 2

// transferWrite describes the file writes of a transfer. The transfer itself retries failed writes.
const transferWrite = "store a received part of a model or task"

// Fetch starts fetching a blob and cancels the previous transfer for the same purpose. The function done is called once
// on the event loop with the blob or an error, possibly before Fetch returns.
func (f *Fetcher) Fetch(ref wire.BlobRef, p BlobPurpose, done func(*Blob, error)) {
	f.startFetch(&blobFetch{ref: ref, purpose: p, done: done})
}

// RenewRetries reports whether the same blob is being fetched for the purpose. If so, it resets the number of retries.
func (f *Fetcher) RenewRetries(ref wire.BlobRef, p BlobPurpose) bool {
	n := f.fetchByPurpose[p]
	same := n != nil && n.BlobPuller != nil && n.ref.Hash == ref.Hash && n.ref.ManifestHash == ref.ManifestHash
	if same {
		n.failedAttempts = 0
	}
	return same
}

// BlobBeingFetched returns the hash of the blob that is being fetched for a purpose. The result ok is false if no blob
// is being fetched or the blob's group key is missing.
func (f *Fetcher) BlobBeingFetched(p BlobPurpose) (hash wire.Digest, ok bool) {
	if n := f.fetchByPurpose[p]; n != nil && n.BlobPuller != nil {
		return n.ref.Hash, true
	}
	return hash, false
}

// Cancel cancels the transfer for a purpose.
func (f *Fetcher) Cancel(p BlobPurpose) {
	n := f.fetchByPurpose[p]
	if n == nil {
		return
	}
	if n.BlobPuller != nil {
		f.stepPuller(n, transfer.Cancel{})
		f.core.WriteRetrier.ReportWriteResult(transferWrite, nil)
	}
	f.fetchByPurpose[p] = nil
	n.done(nil, ErrCanceled)
}

// startFetch starts the transfer of a blob and replaces the current transfer for the same purpose.
func (f *Fetcher) startFetch(n *blobFetch) {
	before := f.fetchByPurpose[n.purpose]
	f.Cancel(n.purpose)
	cfg := transfer.DefaultPullerConfig().ForLinkRate(f.cfg.MinUplinkRate)
	cfg.MaxBlobBytes, cfg.BrokerLacksParts = f.cfg.MaxBytes, f.hadUnavailableParts
	ref, seal, err := f.unsealBlobRef(n.ref)
	switch {
	case errors.Is(err, errNoKey):
		f.awaitGroupKey(n, before != nil && before.BlobPuller == nil && before.ref.Hash == n.ref.Hash)
		return
	case err != nil:
		f.finishFetch(n, nil, err)
		return
	}
	cfg.Sealer = seal
	n.BlobPuller = transfer.NewBlobPuller(cfg, ref, f.core.Rand)
	f.fetchByPurpose[n.purpose] = n
	if !f.core.IsConnected {
		f.stepPuller(n, transfer.LinkDown{})
	}
	f.stepPuller(n, transfer.Start{})
}

// stepPuller passes an event to the state machine that fetches a blob and performs the resulting effects. It does
// nothing if the blob is no longer being fetched.
func (f *Fetcher) stepPuller(n *blobFetch, ev transfer.PullEvent) {
	if f.fetchByPurpose[n.purpose] != n || n.BlobPuller == nil {
		return
	}
	for _, e := range n.Step(f.core.Loop.Now(), ev) {
		switch e := e.(type) {
		case transfer.SubscribeParts:
			f.core.Conn.Subscribe(mqtt.AtMostOnce, f.partTopics(n, e.Parts)...)
		case transfer.UnsubscribeParts:
			f.core.Conn.Unsubscribe(f.partTopics(n, e.Parts)...)
		case transfer.PartsMissing:
			f.requestMissingParts(n, e)
		case transfer.OpenStorage:
			f.openBlobStorage(n, e.Manifest)
		case transfer.StorageFailed:
			f.core.Logger.Error("cannot store a received part of a model or task; retrying",
				"hash", n.ref.Hash.TopicLevel(), "err", e.Err)
			f.core.WriteRetrier.ReportWriteResult(transferWrite, e.Err)
		case transfer.PullDone:
			f.fetchByPurpose[n.purpose] = nil
			f.hadUnavailableParts = n.BrokerLacksParts()
			f.core.WriteRetrier.ReportWriteResult(transferWrite, nil)
			f.finishFetch(n, e.Storage, nil)
		case transfer.PullFailed:
			f.fetchByPurpose[n.purpose] = nil
			f.finishFetch(n, nil, e.Err)
		}
	}
}

// stepAllPullers passes an event to the pullers of all blobs.
func (f *Fetcher) stepAllPullers(ev transfer.PullEvent) {
	for _, n := range f.fetchByPurpose {
		if n != nil {
			f.stepPuller(n, ev)
		}
	}
}

func (f *Fetcher) partTopics(n *blobFetch, parts []string) []string {
	topics := make([]string, len(parts))
	for i, name := range parts {
		topics[i] = f.core.Topics.BlobPart(n.ref.Hash.TopicLevel(), name)
	}
	return topics
}

// requestMissingParts adds the parts that the broker lacks to the next hello. It keeps earlier missing parts of the
// same blob that were not requested yet.
func (f *Fetcher) requestMissingParts(n *blobFetch, e transfer.PartsMissing) {
	if f.missingParts.BlobDigest != n.ref.Hash {
		f.missingParts = wire.MissingBlobParts{BlobDigest: n.ref.Hash}
	}
	m := &f.missingParts
	m.ManifestMissing = m.ManifestMissing || e.ManifestMissing
	for _, k := range e.Chunks {
		m.Chunks = append(m.Chunks, uint32(k))
	}
	slices.Sort(m.Chunks)
	m.Chunks = slices.Compact(m.Chunks)
	m.Chunks = m.Chunks[max(0, len(m.Chunks)-wire.MaxMissingParts):]
	f.core.HandleRoundEvent(agentround.DownloadDataMissing{})
}

// finishFetch handles a fetched blob or an error. If the broker lacks the blob, finishFetch requests the announcement
// again, which may be out of date, and sends a hello message that makes the coordinator check its blobs.
func (f *Fetcher) finishFetch(n *blobFetch, data transfer.ChunkStorage, err error) {
	retry := (errors.Is(err, transfer.ErrBlobGone) || errors.Is(err, transfer.ErrStorageFailed)) &&
		(n.purpose == Task || n.failedAttempts < maxRetries)
	if errors.Is(err, transfer.ErrBlobTooLarge) {
		err = fmt.Errorf("%w: raise limits.max_model in agentd.yaml", err)
	}
	if err != nil {
		f.core.Logger.Warn("cannot fetch a model or task", "hash", n.ref.Hash.TopicLevel(), "bytes", n.ref.Length,
			"retry", retry, "err", err)
	}
	switch {
	case n.purpose == Task && retry:
		f.core.HandleRoundEvent(agentround.TaskChecked{TaskDigest: n.ref.Hash, UnfitReason: wire.DeclineFetchFailed})
	case err != nil && !retry:
		n.done(nil, err)
	case !retry:
		n.done(&Blob{n.ref, data, f.core.StateFolder, n.purpose}, nil)
	}
	if retry {
		f.startFetch(&blobFetch{ref: n.ref, purpose: n.purpose, done: n.done, failedAttempts: n.failedAttempts + 1})
		f.core.Conn.Subscribe(mqtt.AtMostOnce, f.core.Topics.Announcement())
		f.requestHelloForStalledFetch()
	}
}

// requestHelloForStalledFetch sends a hello message with a request for the missing blob parts or group key.
func (f *Fetcher) requestHelloForStalledFetch() {
	f.core.HandleRoundEvent(agentround.FetchStalled{NeededBeyondRound: f.cfg.NeedsModelsOutsideRounds})
}

// ReceiveBlobPart passes a received part of a blob to the blob's transfer. The parameters hash and name come from the
// message topic.
func (f *Fetcher) ReceiveBlobPart(hash, name string, m mqtt.Message) error {
	for _, n := range f.fetchByPurpose {
		if n != nil && n.BlobPuller != nil && n.ref.Hash.TopicLevel() == hash {
			f.stepPuller(n, transfer.PartReceived{PartName: name, Payload: m.Payload, Retained: m.Retained})
			return nil
		}
	}
	return host.NewMessageDropError(part.DropUnwanted, "received part %s of blob %s, which was not requested",
		name, hash)
}

// LinkUp implements part.LinkFollower.
func (f *Fetcher) LinkUp() { f.stepAllPullers(transfer.LinkUp{}) }

// LinkDown implements part.LinkFollower.
func (f *Fetcher) LinkDown(error) { f.stepAllPullers(transfer.LinkDown{}) }

// NeedsLink implements part.LinkNeedReporter.
func (f *Fetcher) NeedsLink() bool {
	return slices.ContainsFunc(f.fetchByPurpose[:], func(n *blobFetch) bool { return n != nil && n.BlobPuller != nil })
}

// Deadline implements part.TickHook.
func (f *Fetcher) Deadline() (time.Time, bool) {
	var next part.EarliestDeadline
	for _, n := range f.fetchByPurpose {
		if n != nil && n.BlobPuller != nil {
			next.Add(n.Deadline())
		}
	}
	next.Add(f.nextKeyRequestAt, f.AwaitsGroupKey())
	return next.At, next.IsSet
}

// Tick implements part.TickHook.
func (f *Fetcher) Tick(now time.Time) {
	f.stepAllPullers(transfer.Tick{})
	f.requestGroupKeyIfDue(now)
}

// FillHello implements part.HelloFiller.
func (f *Fetcher) FillHello(h *wire.Hello) {
	h.MissingParts, f.missingParts = f.missingParts, wire.MissingBlobParts{}
	if h.MissingGroupKeyID = f.missingGroupKeyID(); h.MissingGroupKeyID != 0 && f.AwaitsGroupKey() &&
		!f.isKeyWaitReported {
		f.isKeyWaitReported = true
		f.core.Observer.Observe(GroupKeyAwaited{})
	}
}
