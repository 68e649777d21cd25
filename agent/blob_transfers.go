package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// blobPurpose is the use of a blob that the agent pulls.
type blobPurpose uint8

const (
	purposeTask blobPurpose = iota
	purposeModel
	purposeModelFile // of a model that is rolled out
)

// maxPullRetries is how often a model that is gone is pulled once more, before the
// agent declines. A task is pulled until another is announced.
const maxPullRetries = 2

// blobPull is a blob on its way here.
type blobPull struct {
	*transfer.Puller
	ref         wire.BlobRef
	purpose     blobPurpose
	failedPulls int // pulls before this one, of the same blob in vain
}

func (a *Agent) sortedPullHashes() []string { return slices.Sorted(maps.Keys(a.pulls)) }

// startPull begins to fetch a blob; only one of each purpose is wanted.
func (a *Agent) startPull(ref wire.BlobRef, what blobPurpose, again int) {
	waited, waits := a.seals.blobsAwaitingKey[what]
	a.endPulls(what)
	cfg := transfer.DefaultPullerConfig().For(a.cfg.Rate)
	cfg.MaxBytes, cfg.PartsUnavailable = a.cfg.MaxBlobBytes, a.blobNotReturned
	open, seal, err := a.seals.openBlobRef(ref)
	switch {
	case errors.Is(err, errNoKey):
		a.deferPullUntilKey(what, ref, again, waits && waited.ref.Hash == ref.Hash)
		return
	case err != nil:
		a.handlePulledBlob(&blobPull{ref: ref, purpose: what, failedPulls: again}, nil, err)
		return
	}
	cfg.Seal = seal
	key := ref.Hash.TopicLevel()
	a.pulls[key] = &blobPull{transfer.NewPuller(cfg, open, a.cfg.Rand), ref, what, again}
	if !a.core.Connected {
		a.stepPull(key, transfer.Disconnected{})
	}
	a.stepPull(key, transfer.Start{})
}

// fetchBaseModel has the base model of a round here: the one in use, or else it is pulled, unless that has begun.
func (a *Agent) fetchBaseModel(ref wire.BlobRef) {
	a.baseModelHash = ref.Hash
	if w := a.baseFromModelInUse(ref.Hash); w != nil {
		a.base = w
		a.stepRoundMachine(round.ModelFetched{Base: ref.Hash})
		return
	}
	if p := a.pulls[ref.Hash.TopicLevel()]; p != nil && p.purpose == purposeModel &&
		p.ref.ManifestHash == ref.ManifestHash {
		p.failedPulls = 0
		return
	}
	a.startPull(ref, purposeModel, 0)
}

func (a *Agent) endPulls(what blobPurpose) {
	delete(a.seals.blobsAwaitingKey, what)
	for _, key := range a.sortedPullHashes() {
		if p := a.pulls[key]; p.purpose == what {
			a.stepPull(key, transfer.Cancel{})
			delete(a.pulls, key)
			a.writes.Report(pulledBlobWrite, nil)
			if p.ref.Hash == a.models.pulling.ref.Hash {
				a.models.pulling = announcedModel{}
			}
		}
	}
}

func (a *Agent) receivePart(hash, part string, m mqtt.Message) error {
	if a.pulls[hash] == nil {
		return host.NewDropError(DropUnwanted, "part %s of blob %s", part, hash)
	}
	a.stepPull(hash, transfer.PartReceived{Name: part, Payload: m.Payload, Retained: m.Retained})
	return nil
}

func (a *Agent) stepPull(key string, ev transfer.PullEvent) {
	p := a.pulls[key]
	if p == nil {
		return
	}
	for _, e := range p.Step(a.owner.Now(), ev) {
		switch e := e.(type) {
		case transfer.Subscribe:
			a.conn.Subscribe(mqtt.AtMostOnce, a.blobTopics(key, e.Parts)...)
		case transfer.Unsubscribe:
			a.conn.Unsubscribe(a.blobTopics(key, e.Parts)...)
		case transfer.PartsMissing:
			a.requestMissingParts(p, e)
		case transfer.OpenStorage:
			a.openStorage(key, p, e.Manifest)
		case transfer.StorageFailed:
			a.cfg.Logger.Error("a blob on its way cannot be stored; it is tried again", "hash", key, "err", e.Err)
			a.writes.Report(pulledBlobWrite, e.Err)
		case transfer.PullDone:
			delete(a.pulls, key)
			a.blobNotReturned = p.PartsUnavailable()
			a.writes.Report(pulledBlobWrite, nil)
			a.handlePulledBlob(p, e.Data, nil)
		case transfer.PullFailed:
			delete(a.pulls, key)
			a.handlePulledBlob(p, nil, e.Err)
		}
	}
}

// requestMissingParts has a hello ask the coordinator for parts that the broker does not return, and for those that
// none has asked for yet.
func (a *Agent) requestMissingParts(p *blobPull, e transfer.PartsMissing) {
	if a.missingParts.Blob != p.ref.Hash {
		a.missingParts = wire.MissingParts{Blob: p.ref.Hash}
	}
	l := &a.missingParts
	l.ManifestMissing = l.ManifestMissing || e.Manifest
	for _, k := range e.Chunks {
		l.Chunks = append(l.Chunks, uint32(k))
	}
	slices.Sort(l.Chunks)
	l.Chunks = slices.Compact(l.Chunks)
	l.Chunks = l.Chunks[max(0, len(l.Chunks)-wire.MaxMissingParts):]
	a.stepRoundMachine(round.PartsMissing{})
}

func (a *Agent) blobTopics(hash string, parts []string) []string {
	topics := make([]string, len(parts))
	for i, part := range parts {
		topics[i] = a.cfg.Topics.Blob(hash, part)
	}
	return topics
}

// maxInMemoryBlob is the longest blob that is pulled in memory. A longer one is pulled
// into a file, so that a restart finds what has come; to fetch a small one
// again is cheaper than the wear of the flash.
const maxInMemoryBlob = 1 << 20

// openStorage answers a puller with a place for its blob. Each purpose has one
// file: the hashes of the blob's chunks tell what of it is in the file.
func (a *Agent) openStorage(key string, p *blobPull, m wire.Manifest) {
	answer := transfer.StorageOpened{Blob: m.Hash}
	if m.Length <= maxInMemoryBlob {
		answer.Data = transfer.NewMemoryStorage(int(m.Length))
		a.stepPull(key, answer)
		return
	}
	a.startDataJob(func() func() {
		f, err := a.cfg.Disk.OpenPartial(p.purpose.path(a.cfg.Dir), int64(m.Length), wire.MaxChunk,
			func(k int) [32]byte { return m.Chunks[k] })
		if answer.Err = err; err == nil {
			answer.Data = f
		}
		return func() {
			if a.pulls[key] == p {
				a.stepPull(key, answer)
			} else if err == nil {
				_ = f.Close() // no longer wanted
			}
		}
	})
}

// handlePulledBlob goes on with a blob that is here, or that could not be had. A blob that
// is gone may come back: the announcement is read again, in case it is an old
// one, and the hello that is due makes the coordinator look after its blobs.
func (a *Agent) handlePulledBlob(p *blobPull, data transfer.Storage, err error) {
	retry := errors.Is(err, transfer.ErrGone) || errors.Is(err, transfer.ErrStorageFailed)
	retry = retry && (p.purpose == purposeTask || p.failedPulls < maxPullRetries)
	if errors.Is(err, transfer.ErrTooLarge) {
		err = fmt.Errorf("%w: limits.max_model in agentd.yaml allows more", err)
	}
	if err != nil {
		a.cfg.Logger.Warn("a blob could not be fetched", "hash", p.ref.Hash.TopicLevel(), "bytes", p.ref.Length,
			"tried_again", retry, "err", err)
	}
	switch {
	case p.purpose == purposeTask:
		a.prepareTask(p.ref, data, err)
	case !retry && p.purpose == purposeModelFile:
		a.fileCame(p.ref, data, err)
	case !retry:
		a.receiveBaseModel(p.ref, data, err)
	}
	if retry {
		a.startPull(p.ref, p.purpose, p.failedPulls+1)
		a.conn.Subscribe(mqtt.AtMostOnce, a.cfg.Topics.Announcement())
		a.stepRoundMachine(a.fetchStalledEvent())
	}
}

// stepSenderOf gives the sender an answer about its update. Updates of two
// rounds may have equal content, so the answer's round must be the update's.
func (a *Agent) stepSenderOf(h wire.Header, ev transfer.SendEvent) {
	if a.sender != nil && a.updateBeingSent.run == h.Run && a.updateBeingSent.round == h.Round {
		a.stepSender(ev)
	}
}

func (a *Agent) stepSender(ev transfer.SendEvent) {
	if a.sender == nil {
		return
	}
	s := a.sender
	for _, e := range s.Step(a.owner.Now(), ev) {
		switch e := e.(type) {
		case transfer.SendManifest:
			u := a.updateBeingSent
			body := u.Update
			body.Inline, body.UnsolicitedChunks = s.Inline(), uint32(e.UnsolicitedChunks)
			s.SetSeal(a.signer.coordinatorSealKey.Key.BlobSeal(u.Payload.Hash))
			a.publish(mqtt.Message{
				Topic: a.uploadTopic(transfer.ManifestPart), QoS: mqtt.AtMostOnce,
				Payload: a.signer.SealedEnvelope(a.signer.coordinatorSealKey, wire.TypeUpdate, u.run, u.round,
					body.Body()),
			})
		case transfer.SendChunk:
			a.publish(mqtt.Message{Topic: a.uploadTopic(transfer.ChunkPart(e.ChunkIndex)), QoS: mqtt.AtMostOnce,
				Payload: s.Chunk(e.ChunkIndex)})
		case transfer.UploadFinished:
			a.sender = nil
		}
	}
}

func (a *Agent) uploadTopic(part string) string {
	return a.cfg.Topics.Update(a.cfg.ID, transfer.UploadID(a.updateBeingSent.Payload.Hash), part)
}
