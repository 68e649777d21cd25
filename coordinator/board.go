package coordinator

import (
	"crypto/sha256"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/wire"
)

// board keeps the broker's retained messages as they should be: the present
// announcement and, before it, the blobs that it names. What an older
// announcement named stays for one more announcement of a round, then it goes.
type board struct {
	conn   mqtt.Conn
	topics mqtt.Topics

	sealed []byte
	digest wire.Digest // of the present announcement's envelope
	blobs  []blob      // that it names, and that are not inside it
	before []relic     // of the blobs that these replaced

	gone []relic // is to be deleted at the broker

	next  func() (mqtt.Message, bool) // what is still to be published
	stop  func()
	first *mqtt.Message // taken from next, and not published yet
	retry time.Time
}

// blob is what agents pull.
type blob struct {
	hash   wire.Digest
	data   []byte
	schema wire.Digest
}

// relic is what is left of a blob that is named no longer.
type relic struct {
	hash   wire.Digest
	chunks int
}

// pumpAgain is the wait while the connection's outbox is full.
const pumpAgain = 5 * time.Millisecond

// show makes an announcement the present one.
func (b *board) show(sealed []byte, blobs []blob) {
	b.sealed, b.digest = sealed, sha256.Sum256(sealed[:wire.HeaderSize])
	if !sameBlobs(blobs, b.blobs) {
		b.gone = append(b.gone, b.before...)
		b.before = nil
		for _, old := range b.blobs {
			b.before = append(b.before, relic{old.hash, wire.ChunkCount(len(old.data))})
		}
		b.blobs = blobs
		b.gone = slices.DeleteFunc(b.gone, b.names)
	}
	b.publish()
}

// republish says everything again to a broker that may have forgotten it.
func (b *board) republish() {
	if b.sealed != nil {
		b.publish()
	}
}

func (b *board) publish() {
	b.halt()
	b.next, b.stop = iter.Pull(b.messages())
	b.pump()
}

// halt forgets what is still to be published.
func (b *board) halt() {
	if b.stop != nil {
		b.stop()
	}
	b.next, b.stop, b.first, b.retry = nil, nil, nil, time.Time{}
}

// messages yields the blobs' parts, then the announcement, then the deletions.
func (b *board) messages() iter.Seq[mqtt.Message] {
	return func(yield func(mqtt.Message) bool) {
		retain := func(topic string, payload []byte) bool {
			return yield(mqtt.Message{Topic: topic, Payload: payload, QoS: mqtt.AtLeastOnce, Retained: true})
		}
		for _, x := range b.blobs {
			_, parts, err := transfer.Publish(x.data, x.schema)
			if err != nil {
				continue // a blob of impossible length is refused when it is made
			}
			for part, payload := range parts {
				if !retain(b.topics.Blob(x.hash.Topic(), part), payload) {
					return
				}
			}
		}
		if !retain(b.topics.Round(), b.sealed) {
			return
		}
		for len(b.gone) > 0 {
			x := b.gone[0]
			for k := range x.chunks {
				if !retain(b.topics.Blob(x.hash.Topic(), transfer.ChunkPart(k)), nil) {
					return
				}
			}
			if !retain(b.topics.Blob(x.hash.Topic(), transfer.ManifestPart), nil) {
				return
			}
			b.gone = b.gone[1:]
		}
	}
}

// pump publishes as much as the connection takes.
func (b *board) pump() {
	b.retry = time.Time{}
	for b.next != nil {
		if b.first == nil {
			m, ok := b.next()
			if !ok {
				b.halt()
				return
			}
			b.first = &m
		}
		switch err := b.conn.Publish(*b.first); {
		case errors.Is(err, mqtt.ErrBusy):
			b.retry = time.Now().Add(pumpAgain)
			return
		case err != nil: // down: everything is said again after the next connect
			b.halt()
			return
		}
		b.first = nil
	}
}

func (b *board) deadline() (time.Time, bool) { return b.retry, !b.retry.IsZero() }

func sameBlobs(x, y []blob) bool {
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		if x[i].hash != y[i].hash {
			return false
		}
	}
	return true
}

// names reports whether this announcement or the one before needs the blob.
func (b *board) names(x relic) bool {
	return slices.ContainsFunc(b.blobs, func(y blob) bool { return y.hash == x.hash }) ||
		slices.ContainsFunc(b.before, func(y relic) bool { return y.hash == x.hash })
}
