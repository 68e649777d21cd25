package publish

import (
	"iter"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// A broker of several nodes may not return parts that it retains: a node of NATS learns of them through one of the
// other nodes, and of no new ones while that node is away. It still delivers what is published. Therefore an agent says
// in its hello which parts it lacks, while it is subscribed to them, and the coordinator publishes these once more.
// They are not retained: for that a node would wait for the nodes that store them.

// owedPause is the least time between two publications of one part, however many agents ask.
const owedPause = time.Second

// partRequest is a part that an agent lacks, or did.
type partRequest struct {
	isPending   bool      // it is still to be published
	requestedAt time.Time // when an agent has asked for it the last time that it became due
}

// ResendParts publishes the parts that an agent lacks once more, if the present announcement names their blob. A part
// that is still to be published is published once, however many agents ask.
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
		if int64(k) < int64(p.chunkCount()) { // an agent may say any number
			ask(int(k))
		}
	}
	if l.ManifestMissing {
		ask(p.chunkCount())
	}
	b.AdvanceBeforeWait(now)
}

// hasPartRequests reports whether something is due.
func (b *Publisher) hasPartRequests() bool {
	return slices.ContainsFunc(b.retainedBlobs, func(p *retainedBlob) bool {
		return slices.ContainsFunc(p.partRequests, func(o partRequest) bool { return o.isPending })
	})
}

// requestedMessages yields all that is due.
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
				p.partRequests[k].isPending = false // the connection has taken it
			}
		}
	}
}
