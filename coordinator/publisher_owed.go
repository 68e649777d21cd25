package coordinator

import (
	"iter"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// A broker of several nodes may not return parts that it retains: a node of NATS learns of them through one of the
// nodes, and of no new ones while that one is away. It still delivers what is published. So an agent says in its hello
// which parts it lacks, while it is subscribed to them, and the coordinator publishes these once more. They are not
// retained: for that a node would wait for those which store them.

// owedPause is the least time between two publications of one part, however many agents ask.
const owedPause = time.Second

// owed are parts of a blob that an agent lacks.
type owed struct {
	*post
	wire.Lacks
}

// owe has parts of a blob published once more, if it is one of the present announcement.
func (b *publisher) owe(now time.Time, l wire.Lacks) {
	i := slices.IndexFunc(b.posts, func(p *post) bool { return p.ref.Hash == l.Blob })
	if i < 0 || !b.up {
		return
	}
	p := b.posts[i]
	due := func(k int) bool {
		if k > p.chunks() || now.Sub(p.given[k]) < owedPause {
			return false
		}
		p.given[k] = now
		return true
	}
	l.Chunks = slices.DeleteFunc(l.Chunks, func(k uint32) bool { return !due(int(k) + 1) })
	l.Manifest = l.Manifest && due(0)
	if l.Manifest || len(l.Chunks) > 0 {
		b.owed = append(b.owed, owed{p, l})
		b.pump(now)
	}
}

// give yields all that is owed.
func (b *publisher) give() iter.Seq[mqtt.Message] {
	all := b.owed
	b.owed = nil
	return func(yield func(mqtt.Message) bool) {
		for _, o := range all {
			for part, payload := range o.named(o.Lacks) {
				topic := b.topics.Blob(o.ref.Hash.Topic(), part)
				if !yield(mqtt.Message{Topic: topic, Payload: payload, QoS: mqtt.AtMostOnce}) {
					return
				}
			}
		}
	}
}
