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

// owed is a part that an agent lacks, or did.
type owed struct {
	due bool      // it is still to be published
	at  time.Time // when an agent has asked for it the last time that it became due
}

// owe has parts of a blob published once more, if it is one of the present announcement. A part that is due already is
// published once, however long that takes.
func (b *publisher) owe(now time.Time, l wire.MissingParts) {
	i := slices.IndexFunc(b.posts, func(p *post) bool { return p.ref.Hash == l.Blob })
	if i < 0 || !b.up {
		return
	}
	p := b.posts[i]
	ask := func(k int) {
		if o := &p.owed[k]; now.Sub(o.at) >= owedPause {
			*o = owed{true, now}
		}
	}
	for _, k := range l.Chunks {
		if int64(k) < int64(p.chunks()) { // an agent may say any number
			ask(int(k))
		}
	}
	if l.Manifest {
		ask(p.chunks())
	}
	b.pump(now)
}

// owes reports whether something is due.
func (b *publisher) owes() bool {
	return slices.ContainsFunc(b.posts, func(p *post) bool {
		return slices.ContainsFunc(p.owed, func(o owed) bool { return o.due })
	})
}

// give yields all that is due.
func (b *publisher) give() iter.Seq[mqtt.Message] {
	posts := b.posts
	return func(yield func(mqtt.Message) bool) {
		for _, p := range posts {
			for k := range p.owed {
				if !p.owed[k].due {
					continue
				}
				topic, payload := p.message(b.topics, k)
				if !yield(mqtt.Message{Topic: topic, Payload: payload, QoS: mqtt.AtMostOnce}) {
					return
				}
				p.owed[k].due = false // the connection has taken it
			}
		}
	}
}
