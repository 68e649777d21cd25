package coordinator

import (
	"crypto/sha256"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/wire"
)

// publisher keeps the broker's retained messages as they should be: the blobs that
// the present announcement names, read back to see that the broker has them,
// then the announcement, then the deletion of what is named no longer. A
// blob of an older announcement stays for one more announcement of other blobs.
//
// Of everything it says it knows only that it was said: when the link comes
// back, each blob is read back again, and what is missing published again.
type publisher struct {
	conn   mqtt.Conn
	topics mqtt.Topics
	rng    *rand.Rand
	tell   func(BlobChecked)
	handed func(now time.Time) // the announcement is with the connection

	up     bool
	sealed []byte
	digest wire.Digest // of the present announcement's envelope
	recent []replaced  // announcements of this process before it, the oldest first
	posts  []*post     // of the blobs that it names, and that are not inside it
	listed published

	announced bool // in this session
	deleted   bool // the same, of listed.Gone

	reading   *reading
	suspected time.Time                   // the last check that an agent asked for
	next      func() (mqtt.Message, bool) // what is still to be published
	stop      func()
	done      func()        // when all of next is with the connection
	first     *mqtt.Message // taken from next, and not published yet
	retry     time.Time     // nothing is done before
}

// relic is what a blob's deletion needs to know of it.
type relic struct {
	Hash   wire.Digest
	Chunks int
}

// published lists the blobs that may be retained at the broker. It is on disk
// before the first part of a new one is published.
type published struct {
	Now    []relic // named by the present announcement
	Before []relic // of the blobs that these replaced
	Gone   []relic // are to be deleted
}

// pumpAgain is the wait while the connection's outbox is full.
const pumpAgain = 5 * time.Millisecond

// plan returns the list as it must be on disk before an announcement that
// names these blobs is shown, and whether it is another than that there.
func (b *publisher) plan(blobs []blob) (published, bool) {
	var now []relic
	for _, x := range blobs {
		now = append(now, x.relic())
	}
	if slices.Equal(now, b.listed.Now) {
		return b.listed, false
	}
	p := published{Now: now, Before: b.listed.Now}
	if !b.deleted { // else they were, and the link held
		p.Gone = slices.Clone(b.listed.Gone)
	}
	p.Gone = append(p.Gone, b.listed.Before...)
	p.Gone = slices.DeleteFunc(p.Gone,
		func(x relic) bool { return slices.Contains(p.Now, x) || slices.Contains(p.Before, x) })
	return p, true
}

// show makes an announcement the present one. The list is what plan returned.
func (b *publisher) show(now time.Time, sealed []byte, blobs []blob, list published) {
	b.halt()
	var posts []*post
	for _, x := range blobs {
		i := slices.IndexFunc(b.posts, func(p *post) bool { return p.ref.Hash == x.ref.Hash })
		if i >= 0 {
			posts = append(posts, b.posts[i])
		} else {
			// A blob that an earlier process has listed may be at the broker.
			posts = append(posts, newPost(x, slices.Contains(b.listed.Now, x.relic())))
		}
	}
	b.replace(now)
	b.sealed, b.digest, b.posts = sealed, sha256.Sum256(sealed[:wire.HeaderSize]), posts
	b.listed, b.announced, b.deleted = list, false, false
	b.pump(now)
}

// replaced is an announcement that another has replaced.
type replaced struct {
	digest wire.Digest
	at     time.Time
}

// helloOnItsWay is how long a hello may be on its way: where rounds take less, it names an announcement from some
// rounds ago.
const helloOnItsWay = 10 * time.Second

// replace notes that the present announcement is replaced, and forgets the older ones, but for the newest.
func (b *publisher) replace(now time.Time) {
	if b.sealed == nil {
		return
	}
	b.recent = append(b.recent, replaced{b.digest, now})
	old := func(r replaced) bool { return now.Sub(r.at) > helloOnItsWay }
	n := 0
	for n < len(b.recent)-1 && old(b.recent[n]) {
		n++
	}
	b.recent = slices.Delete(b.recent, 0, n)
}

// isRecent reports whether an agent may name this announcement in a hello: the present one, the one before, or one that
// was replaced a short while ago. Announcements of earlier processes are not among them: hellos to them may be old
// recordings, and agents say hello to the new ones when they are asked to.
func (b *publisher) isRecent(announcement wire.Digest, now time.Time) bool {
	if announcement == b.digest {
		return true
	}
	for i, r := range b.recent {
		if r.digest == announcement {
			return i == len(b.recent)-1 || now.Sub(r.at) <= helloOnItsWay
		}
	}
	return false
}

// connected says everything again to a broker that may have forgotten it.
func (b *publisher) connected(now time.Time) {
	b.halt()
	b.up, b.announced, b.deleted, b.suspected = true, false, false, now
	b.doubt()
	b.pump(now)
}

// repeat has the announcement published again, in the place of another one.
func (b *publisher) repeat(now time.Time) {
	b.announced = false
	b.pump(now)
}

func (b *publisher) disconnected() {
	b.halt()
	b.up, b.deleted = false, false
}

// halt gives up what is being done; it is begun again where it matters.
func (b *publisher) halt() {
	if b.stop != nil {
		b.stop()
	}
	b.next, b.stop, b.done, b.first, b.retry = nil, nil, nil, nil, time.Time{}
	b.stopReading()
}

// pump does what is next, as far as the broker lets it.
func (b *publisher) pump(now time.Time) {
	for b.up && b.sealed != nil && b.reading == nil && !now.Before(b.retry) {
		b.retry = time.Time{}
		if b.next != nil {
			b.drain(now)
			continue
		}
		i := slices.IndexFunc(b.posts, func(p *post) bool { return !p.checked })
		switch {
		case i >= 0 && !b.posts[i].said:
			b.publish(b.posts[i].missing(b.topics), func() { b.posts[i].said, b.posts[i].anew = true, true })
		case i >= 0:
			b.read(now, b.posts[i])
		case !b.announced:
			b.publish(slices.Values([]mqtt.Message{retained(b.topics.Round(), b.sealed)}), func() {
				b.announced = true
				b.handed(now)
			})
		case !b.deleted:
			b.publish(b.deletions(), func() { b.deleted = true })
		default:
			return
		}
	}
	b.tickReading(now)
}

func retained(topic string, payload []byte) mqtt.Message {
	return mqtt.Message{Topic: topic, Payload: payload, QoS: mqtt.AtLeastOnce, Retained: true}
}

func (b *publisher) publish(messages iter.Seq[mqtt.Message], done func()) {
	b.next, b.stop = iter.Pull(messages)
	b.done = done
}

func (b *publisher) deletions() iter.Seq[mqtt.Message] {
	return func(yield func(mqtt.Message) bool) {
		for _, x := range b.listed.Gone {
			for k := range x.Chunks {
				if !yield(retained(b.topics.Blob(x.Hash.Topic(), transfer.ChunkPart(k)), nil)) {
					return
				}
			}
			if !yield(retained(b.topics.Blob(x.Hash.Topic(), transfer.ManifestPart), nil)) {
				return
			}
		}
	}
}

// drain publishes as much as the connection takes.
func (b *publisher) drain(now time.Time) {
	for {
		if b.first == nil {
			m, ok := b.next()
			if !ok {
				b.done()
				b.next, b.stop, b.done = nil, nil, nil
				return
			}
			b.first = &m
		}
		switch err := b.conn.Publish(*b.first); {
		case errors.Is(err, mqtt.ErrBusy):
			b.retry = now.Add(pumpAgain)
			return
		case err != nil: // down: everything is said again after the next connect
			b.disconnected()
			return
		}
		b.first = nil
	}
}

// deadline returns when pump wants to be called, if nothing comes before.
func (b *publisher) deadline() (time.Time, bool) {
	if b.reading != nil {
		return b.reading.puller.Deadline()
	}
	return b.retry, b.up && !b.retry.IsZero()
}
