package publish

import (
	"iter"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// A broker cluster may fail to return parts that it retains. A NATS node learns which parts are retained from another
// node, and does not learn about new parts while that node is down. Published messages are still delivered.
//
// Therefore an agent lists the missing parts in its hello while subscribed to them, and the coordinator publishes these
// parts again. The repeated messages are not retained, because the node would wait for the nodes that store retained
// messages.

// owedPause is the minimum time between two publications of the same requested part.
const owedPause = time.Second

// partRequest is an agent's request to publish a part of a blob again.
type partRequest struct {
	isPending   bool      // true until the part is published
	requestedAt time.Time // time of the last request that set isPending
}

// ResendParts publishes the parts that an agent lacks, if the current announcement refers to their blob. A pending part
// is published once, even if several agents request it.
func (b *Publisher) ResendParts(now time.Time, l wire.MissingBlobParts) {
	i := slices.IndexFunc(b.retainedBlobs, func(p *retainedBlob) bool { return p.Ref.Hash == l.BlobDigest })
	if i < 0 || !b.isLinkUp {
		return
	}
	p := b.retainedBlobs[i]
	ask := func(k int) {
		if o := &p.partRequests[k]; now.Sub(o.requestedAt) >= owedPause {
			*o = partRequest{true, now}
		}
	}
	for _, k := range l.Chunks {
		if int64(k) < int64(p.chunkCount()) { // The agent may have sent an invalid number.
			ask(int(k))
		}
	}
	if l.ManifestMissing {
		ask(p.chunkCount())
	}
	b.AdvanceBeforeWait(now)
}

// hasPartRequests reports whether any part request is pending.
func (b *Publisher) hasPartRequests() bool {
	return slices.ContainsFunc(b.retainedBlobs, func(p *retainedBlob) bool {
		return slices.ContainsFunc(p.partRequests, func(o partRequest) bool { return o.isPending })
	})
}

// requestedMessages yields the messages for all pending part requests.
func (b *Publisher) requestedMessages() iter.Seq[mqtt.Message] {
	posts := b.retainedBlobs
	return func(yield func(mqtt.Message) bool) {
		for _, p := range posts {
			for k := range p.partRequests {
				if !p.partRequests[k].isPending {
					continue
				}
				topic, payload := p.partMessage(b.topics, k)
				if !yield(mqtt.Message{Topic: topic, Payload: payload, QoS: mqtt.AtMostOnce}) {
					return
				}
				p.partRequests[k].isPending = false // The connection has accepted the message.
			}
		}
	}
}
