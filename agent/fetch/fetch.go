// Package fetch fetches blobs from the broker: tasks, base models, and files of models to predict with. It also keeps
// the group keys under which blobs are sealed. Training, prediction and evaluation share one Fetcher.
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

// Purpose is the use of a blob. At most one blob of each purpose is fetched at a time.
type Purpose uint8

// The purposes.
const (
	Task      Purpose = iota
	Model             // a base model, for training, prediction or evaluation
	ModelFile         // the file of a model that is rolled out

	purposeCount = iota
)

// FileName returns the name of the file in the state folder into which a large blob is fetched. Its chunks are checked
// against their hashes.
func (p Purpose) FileName() string {
	return [...]string{Task: "task.part", Model: "model.part", ModelFile: "file.part"}[p]
}

// Config limits what is fetched.
type Config struct {
	MaxBytes int               // maximum length of a blob
	Rate     transfer.LinkRate // minimum rate of the uplink
	// NeededBeyondRound means that the agent asks for missing models even if it has no part in a round.
	NeededBeyondRound bool
}

// Fetcher is the part of an agent that fetches blobs.
type Fetcher struct {
	core     *part.Core
	cfg      Config
	accepted func()

	fetches      [purposeCount]*fetch // nil = nothing is fetched for the purpose
	missingParts wire.MissingParts    // parts of a blob that the next hello asks for
	// partsUnavailable means that the broker did not return the previous blob: the coordinator had to publish it again.
	partsUnavailable bool
	groupKeys        []wire.SealKey // the newest first, at most maxGroupKeys
	keyRequestAt     time.Time      // of the next hello that asks for a group key
	keyRequestWait   time.Duration
	keyRequested     bool // GroupKeyAwaited was reported
}

// fetch is a blob that is being fetched.
type fetch struct {
	*transfer.Puller // nil while the agent lacks the group key of the blob
	ref              wire.BlobRef
	purpose          Purpose
	failedAttempts   int // earlier attempts to fetch the blob
	done             func(*Blob, error)
}

// New makes the part, and reads the group keys. accepted is called when the coordinator has sent a group key, which
// shows that it accepts the agent's messages.
func New(core *part.Core, cfg Config, accepted func()) (f *Fetcher, err error) {
	f = &Fetcher{core: core, cfg: cfg, accepted: accepted}
	f.groupKeys, err = loadGroupKeys(core.State)
	return f, err
}

// ErrCanceled means that a blob is no longer fetched, because of Cancel or another blob of the same purpose.
var ErrCanceled = errors.New("another blob is fetched instead, or none is needed")

// maxRetries limits the retries of a model that the broker does not have. A task is retried until another one is
// announced.
const maxRetries = 2

// transferWrite is the purpose of the writes of a transfer, which retries them itself.
const transferWrite = "store a model or task on its way"

// Fetch fetches a blob, in place of the previous blob of the purpose. done is called once, on the owner's goroutine and
// possibly before Fetch returns, with the blob or with the reason why it is not available.
func (f *Fetcher) Fetch(ref wire.BlobRef, p Purpose, done func(*Blob, error)) {
	f.start(&fetch{ref: ref, purpose: p, done: done})
}

// Renew reports whether the same blob is being fetched for the purpose. If it is, it gets all its retries again.
func (f *Fetcher) Renew(ref wire.BlobRef, p Purpose) bool {
	n := f.fetches[p]
	same := n != nil && n.Puller != nil && n.ref.Hash == ref.Hash && n.ref.ManifestHash == ref.ManifestHash
	if same {
		n.failedAttempts = 0
	}
	return same
}

// Underway returns the hash of the blob that is being fetched for a purpose. It is not ok if there is none, or if its
// group key is missing.
func (f *Fetcher) Underway(p Purpose) (hash wire.Digest, ok bool) {
	if n := f.fetches[p]; n != nil && n.Puller != nil {
		return n.ref.Hash, true
	}
	return hash, false
}

// Cancel stops fetching the blob of a purpose.
func (f *Fetcher) Cancel(p Purpose) {
	n := f.fetches[p]
	if n == nil {
		return
	}
	if n.Puller != nil {
		f.step(n, transfer.Cancel{})
		f.core.Writes.Report(transferWrite, nil)
	}
	f.fetches[p] = nil
	n.done(nil, ErrCanceled)
}

// start begins to fetch a blob, in place of the previous blob of the purpose.
func (f *Fetcher) start(n *fetch) {
	before := f.fetches[n.purpose]
	f.Cancel(n.purpose)
	cfg := transfer.DefaultPullerConfig().For(f.cfg.Rate)
	cfg.MaxBytes, cfg.PartsUnavailable = f.cfg.MaxBytes, f.partsUnavailable
	ref, seal, err := f.openRef(n.ref)
	switch {
	case errors.Is(err, errNoKey):
		f.awaitKey(n, before != nil && before.Puller == nil && before.ref.Hash == n.ref.Hash)
		return
	case err != nil:
		f.finish(n, nil, err)
		return
	}
	cfg.Seal = seal
	n.Puller = transfer.NewPuller(cfg, ref, f.core.Rand)
	f.fetches[n.purpose] = n
	if !f.core.Connected {
		f.step(n, transfer.Disconnected{})
	}
	f.step(n, transfer.Start{})
}

// step gives the puller of a blob an event and performs the effects that follow. It does nothing if the blob is no
// longer fetched.
func (f *Fetcher) step(n *fetch, ev transfer.PullEvent) {
	if f.fetches[n.purpose] != n || n.Puller == nil {
		return
	}
	for _, e := range n.Step(f.core.Loop.Now(), ev) {
		switch e := e.(type) {
		case transfer.Subscribe:
			f.core.Conn.Subscribe(mqtt.AtMostOnce, f.topics(n, e.Parts)...)
		case transfer.Unsubscribe:
			f.core.Conn.Unsubscribe(f.topics(n, e.Parts)...)
		case transfer.PartsMissing:
			f.requestMissingParts(n, e)
		case transfer.OpenStorage:
			f.openStorage(n, e.Manifest)
		case transfer.StorageFailed:
			f.core.Logger.Error("a blob on its way cannot be stored; it is tried again",
				"hash", n.ref.Hash.TopicLevel(), "err", e.Err)
			f.core.Writes.Report(transferWrite, e.Err)
		case transfer.PullDone:
			f.fetches[n.purpose] = nil
			f.partsUnavailable = n.PartsUnavailable()
			f.core.Writes.Report(transferWrite, nil)
			f.finish(n, e.Data, nil)
		case transfer.PullFailed:
			f.fetches[n.purpose] = nil
			f.finish(n, nil, e.Err)
		}
	}
}

// stepAll gives the pullers of all blobs an event.
func (f *Fetcher) stepAll(ev transfer.PullEvent) {
	for _, n := range f.fetches {
		if n != nil {
			f.step(n, ev)
		}
	}
}

func (f *Fetcher) topics(n *fetch, parts []string) []string {
	topics := make([]string, len(parts))
	for i, name := range parts {
		topics[i] = f.core.Topics.Blob(n.ref.Hash.TopicLevel(), name)
	}
	return topics
}

// requestMissingParts has the next hello ask the coordinator for parts that the broker does not return, together with
// earlier parts of the blob that no hello has asked for yet.
func (f *Fetcher) requestMissingParts(n *fetch, e transfer.PartsMissing) {
	if f.missingParts.Blob != n.ref.Hash {
		f.missingParts = wire.MissingParts{Blob: n.ref.Hash}
	}
	m := &f.missingParts
	m.ManifestMissing = m.ManifestMissing || e.Manifest
	for _, k := range e.Chunks {
		m.Chunks = append(m.Chunks, uint32(k))
	}
	slices.Sort(m.Chunks)
	m.Chunks = slices.Compact(m.Chunks)
	m.Chunks = m.Chunks[max(0, len(m.Chunks)-wire.MaxMissingParts):]
	f.core.Step(agentround.PartsMissing{})
}

// finish handles a blob that was fetched, or the reason why it is not available. A blob that the broker does not have
// may be published again: the announcement is read again, because it may be an old one, and a hello has the coordinator
// check its blobs.
func (f *Fetcher) finish(n *fetch, data transfer.Storage, err error) {
	retry := (errors.Is(err, transfer.ErrGone) || errors.Is(err, transfer.ErrStorageFailed)) &&
		(n.purpose == Task || n.failedAttempts < maxRetries)
	if errors.Is(err, transfer.ErrTooLarge) {
		err = fmt.Errorf("%w: limits.max_model in agentd.yaml allows more", err)
	}
	if err != nil {
		f.core.Logger.Warn("a blob could not be fetched", "hash", n.ref.Hash.TopicLevel(), "bytes", n.ref.Length,
			"tried_again", retry, "err", err)
	}
	switch {
	case n.purpose == Task && retry:
		f.core.Step(agentround.TaskChecked{Task: n.ref.Hash, UnfitReason: wire.DeclineFetch})
	case err != nil && !retry:
		n.done(nil, err)
	case !retry:
		n.done(&Blob{n.ref, data, f.core.State, n.purpose}, nil)
	}
	if retry {
		f.start(&fetch{ref: n.ref, purpose: n.purpose, done: n.done, failedAttempts: n.failedAttempts + 1})
		f.core.Conn.Subscribe(mqtt.AtMostOnce, f.core.Topics.Announcement())
		f.stalled()
	}
}

// stalled makes a hello request the missing parts, or the missing group key.
func (f *Fetcher) stalled() {
	f.core.Step(agentround.FetchStalled{NeededBeyondRound: f.cfg.NeededBeyondRound})
}

// ReceivePart handles a part of a blob, which arrived on the topic of the blob's hash.
func (f *Fetcher) ReceivePart(hash, name string, m mqtt.Message) error {
	for _, n := range f.fetches {
		if n != nil && n.Puller != nil && n.ref.Hash.TopicLevel() == hash {
			f.step(n, transfer.PartReceived{Name: name, Payload: m.Payload, Retained: m.Retained})
			return nil
		}
	}
	return host.NewDropError(part.DropUnwanted, "part %s of blob %s", name, hash)
}

// LinkUp implements part.LinkFollower.
func (f *Fetcher) LinkUp() { f.stepAll(transfer.Connected{}) }

// LinkDown implements part.LinkFollower.
func (f *Fetcher) LinkDown(error) { f.stepAll(transfer.Disconnected{}) }

// NeedsLink implements part.LinkUser.
func (f *Fetcher) NeedsLink() bool {
	return slices.ContainsFunc(f.fetches[:], func(n *fetch) bool { return n != nil && n.Puller != nil })
}

// Deadline implements part.Timer.
func (f *Fetcher) Deadline() (time.Time, bool) {
	var next part.Earliest
	for _, n := range f.fetches {
		if n != nil && n.Puller != nil {
			next.Add(n.Deadline())
		}
	}
	next.Add(f.keyRequestAt, f.AwaitsKey())
	return next.At, next.OK
}

// Tick implements part.Timer.
func (f *Fetcher) Tick(now time.Time) {
	f.stepAll(transfer.Tick{})
	f.requestKey(now)
}

// FillHello implements part.Greeter.
func (f *Fetcher) FillHello(h *wire.Hello) {
	h.MissingParts, f.missingParts = f.missingParts, wire.MissingParts{}
	if h.MissingGroupKeyID = f.missingKeyID(); h.MissingGroupKeyID != 0 && f.AwaitsKey() && !f.keyRequested {
		f.keyRequested = true
		f.core.Observer.Observe(GroupKeyAwaited{})
	}
}
