package publish

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// The broker may accept a message without retaining it. Therefore the publisher downloads each new blob once, and all
// blobs after each connect, to check that they are retained. The round continues meanwhile. Agents that lack a part
// request it.

const (
	// checkTimeout is the time without a new part after which the remaining parts are considered missing.
	checkTimeout = 5 * time.Second
	// checkPatience is the number of timeouts after which the check of a newly published blob fails. The check of any
	// other blob fails after one timeout.
	checkPatience = 3
	// checkAgain is the initial delay before missing parts of a blob are published again. It doubles up to checkSeldom.
	checkAgain  = 2 * time.Second
	checkSeldom = time.Minute
	// checkPause is the minimum time between two checks that reports of agents trigger.
	checkPause = 30 * time.Second
)

// retainedBlob is a blob and the state of its parts at the broker.
type retainedBlob struct {
	Blob
	returnedChunks     []bool        // true for each chunk that the broker returned
	partRequests       []partRequest // pending requests of agents, by part
	allPartsSent       bool          // true if all parts were published, perhaps by an earlier process
	publishedInSession bool          // true if parts were published since the last resetBlobChecks
	allPartsReturned   bool          // true if the broker returned all parts
	fruitlessChecks    int           // number of consecutive checks without a new part
	republishAt        time.Time     // time before which no part is published again
}

func newRetainedBlob(x Blob, sent bool) *retainedBlob {
	return &retainedBlob{Blob: x, returnedChunks: make([]bool, x.chunkCount()), partRequests: make([]partRequest,
		x.chunkCount()+1), allPartsSent: sent}
}

// missingPartMessages yields messages with the parts that the broker did not return.
func (p *retainedBlob) missingPartMessages(topics mqtt.Topics) iter.Seq[mqtt.Message] {
	return func(yield func(mqtt.Message) bool) {
		for k := range p.chunkCount() + 1 {
			if (k == len(p.returnedChunks) || !p.returnedChunks[k]) && !yield(RetainedMessage(p.partMessage(topics,
				k))) {
				return
			}
		}
	}
}

// partMessage returns the topic and the payload of part k: a chunk, or the manifest after the last chunk.
func (p *retainedBlob) partMessage(topics mqtt.Topics, k int) (topic string, payload []byte) {
	name, payload := p.chunkMessage(k)
	return topics.BlobPart(p.Ref.Hash.TopicLevel(), name), payload
}

func (p *retainedBlob) missingChunkCount() (n int) {
	for _, ok := range p.returnedChunks {
		if !ok {
			n++
		}
	}
	return n
}

// HasChunk, PutChunk and Close implement the chunk storage of a download. They record that a chunk has arrived, but do
// not store the chunk.
func (p *retainedBlob) HasChunk(k int) bool            { return p.returnedChunks[k] }
func (p *retainedBlob) PutChunk(k int, _ []byte) error { p.returnedChunks[k] = true; return nil }
func (p *retainedBlob) Close() error                   { return nil }

// blobReadBack is a blob that is currently being read back.
type blobReadBack struct {
	*retainedBlob
	puller              *transfer.BlobPuller
	missingPartsAtStart int
	beganAt             time.Time
	subscribedTopics    map[string]bool // topics of the parts to which the publisher is subscribed
}

// resetBlobChecks marks all blobs for reading back.
func (b *Publisher) resetBlobChecks() {
	for _, p := range b.retainedBlobs {
		p.allPartsReturned, p.publishedInSession, p.fruitlessChecks, p.republishAt = false, false, 0, time.Time{}
		clear(p.returnedChunks)
	}
}

// RecheckBlobs reads all blobs back after an agent reported that it cannot download a blob, at most once in checkPause.
// It does nothing while a blob is known to be missing, because that would reset the backoff.
func (b *Publisher) RecheckBlobs(now time.Time) {
	failing := slices.ContainsFunc(b.retainedBlobs, func(p *retainedBlob) bool { return p.fruitlessChecks > 0 })
	if b.readBack == nil && b.nextQueuedMessage == nil && !failing && now.Sub(b.lastRecheckAt) >= checkPause {
		b.lastRecheckAt = now
		b.resetBlobChecks()
		b.AdvanceBeforeWait(now)
	}
}

func (b *Publisher) startReadBack(now time.Time, p *retainedBlob) {
	cfg := transfer.DefaultPullerConfig()
	cfg.FirstStallTimeout, cfg.MaxStallTimeout, cfg.MaxStalls, cfg.Sealer = checkTimeout, checkTimeout, 1, p.seal
	if p.publishedInSession {
		cfg.MaxStalls = checkPatience
	}
	b.readBack = &blobReadBack{p, transfer.NewBlobPuller(cfg, p.Ref, b.rng), p.missingChunkCount(), now,
		map[string]bool{}}
	b.stepReadBack(now, transfer.Start{})
}

func (b *Publisher) stopReadBack() {
	if b.readBack != nil {
		b.stepReadBack(time.Time{}, transfer.Cancel{})
		b.readBack = nil
	}
}

func (b *Publisher) tickReadBack(now time.Time) {
	if b.readBack != nil {
		b.stepReadBack(now, transfer.Tick{})
	}
}

// ReceiveBlobPart handles a part of a blob that arrives from the broker. If the retained flag is not set, the part is
// an echo of the coordinator's own message, and ReceiveBlobPart requests the part again.
func (b *Publisher) ReceiveBlobPart(now time.Time, m mqtt.Message, hash, part string) {
	r := b.readBack
	switch {
	// The part is late, or belongs to an earlier check.
	case r == nil || r.Ref.Hash.TopicLevel() != hash || !r.subscribedTopics[m.Topic]:
	case m.Retained:
		b.stepReadBack(now, transfer.PartReceived{PartName: part, Payload: m.Payload, Retained: true})
	default:
		b.conn.Subscribe(mqtt.AtMostOnce, m.Topic)
	}
}

// HandleFilterRefusal handles a subscription that the broker refused. It reports whether the filter belongs to the
// publisher. The first refusal ends the current check; later refusals are ignored.
func (b *Publisher) HandleFilterRefusal(now time.Time, filter string) bool {
	if kind, _, _, _, err := b.topics.ParseTopic(filter); err != nil || kind != mqtt.KindBlob {
		return false
	}
	if r := b.readBack; r != nil && r.subscribedTopics[filter] {
		b.stopReadBack()
		b.republishMissingParts(now, r, true)
	}
	return true
}

func (b *Publisher) stepReadBack(now time.Time, ev transfer.PullEvent) {
	r := b.readBack
	for _, e := range r.puller.Step(now, ev) {
		switch e := e.(type) {
		case transfer.SubscribeParts:
			topics := b.partTopics(r, e.Parts)
			for _, t := range topics {
				r.subscribedTopics[t] = true
			}
			b.conn.Subscribe(mqtt.AtMostOnce, topics...)
		case transfer.UnsubscribeParts:
			topics := b.partTopics(r, e.Parts)
			for _, t := range topics {
				delete(r.subscribedTopics, t)
			}
			b.conn.Unsubscribe(topics...)
		case transfer.OpenStorage:
			b.stepReadBack(now, transfer.StorageOpened{BlobDigest: r.Ref.Hash, Storage: r.retainedBlob})
		case transfer.PullDone:
			b.readBack = nil
			r.allPartsReturned, r.fruitlessChecks = true, 0
			b.observer.Observe(BlobReadBackEnded{Blob: r.Ref.Hash, Parts: len(r.returnedChunks) + 1,
				CheckDuration: now.Sub(r.beganAt)})
			b.AdvanceBeforeWait(now)
		case transfer.PullFailed:
			b.readBack = nil
			b.republishMissingParts(now, r, false)
		}
	}
}

func (b *Publisher) partTopics(r *blobReadBack, parts []string) []string {
	topics := slices.Clone(parts)
	for i, part := range topics {
		topics[i] = b.topics.BlobPart(r.Ref.Hash.TopicLevel(), part)
	}
	return topics
}

// republishMissingParts publishes the parts that the broker did not return. It publishes them at once if they may never
// have been sent, or if the check found parts that were missing before. Otherwise it waits with exponential backoff.
func (b *Publisher) republishMissingParts(now time.Time, r *blobReadBack, refused bool) {
	again := r.publishedInSession && r.missingChunkCount() == r.missingPartsAtStart || refused
	r.allPartsSent, r.publishedInSession, r.republishAt = false, false, time.Time{}
	if again {
		wait := min(checkAgain<<min(r.fruitlessChecks, 10), checkSeldom)
		r.fruitlessChecks++
		r.republishAt = now.Add(wait)
		b.observer.Observe(BlobReadBackEnded{Blob: r.Ref.Hash, Parts: len(r.returnedChunks) + 1,
			Missing: r.missingChunkCount() + 1, ReadRefused: refused,
			CheckDuration: now.Sub(r.beganAt), RepublishDelay: wait})
	}
	b.AdvanceBeforeWait(now)
}

// Metrics lists the metrics of the events in this package.
var Metrics = []*observe.Metric{missingBlobParts}

var missingBlobParts = observe.Gauge("blob_missing_parts",
	"Parts of the newest task or model that the broker did not return when the coordinator read it back. They are "+
		"published again.")

// BlobReadBackEnded reports that the coordinator finished reading a blob back from the broker. The announcement does
// not wait for this check. Missing parts are published again.
type BlobReadBackEnded struct {
	Blob           wire.Digest
	Parts, Missing int           // number of parts, including the manifest, and number of missing parts
	ReadRefused    bool          // true if the broker does not allow the coordinator to read the parts
	CheckDuration  time.Duration // time until all parts were read or the check failed
	RepublishDelay time.Duration // delay before the missing parts are published again
}

// Describe implements observe.Event.
func (e BlobReadBackEnded) Describe(d *observe.EventDescription) {
	const condition = "retained blob"
	d.SetGauge(missingBlobParts, float64(e.Missing))
	if e.Missing == 0 {
		d.Log(observe.Debug, "broker returned all parts of the task or model", "blob", e.Blob.TopicLevel(), "parts",
			e.Parts,
			"took", e.CheckDuration)
		d.ResolveCondition(condition)
		return
	}
	attributes := []any{"blob", e.Blob.TopicLevel(), "parts", e.Parts, "missing", e.Missing,
		"retry_in", e.RepublishDelay}
	problem := fmt.Sprintf("the broker did not return %d of %d parts of the task or model", e.Missing, e.Parts)
	remedy := "allow the broker to retain one message of 64 KiB per part, and allow the coordinator to read and " +
		"write the topics m/# (`coordinator acl` writes the rules for Mosquitto)"
	if e.ReadRefused {
		problem = "the broker does not allow the coordinator to read back the published task or model"
		remedy = "allow the coordinator to read and write the topics m/# (`coordinator acl` writes the rules for " +
			"Mosquitto)"
		d.Log(observe.Error, "broker does not allow the coordinator to read back the published task or model",
			attributes...)
	} else {
		d.Log(observe.Error, "broker did not return all parts of the task or model", attributes...)
	}
	d.RaiseCondition(condition, problem+"; agents cannot participate until this is resolved", remedy)
}
