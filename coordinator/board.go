package coordinator

import (
	"crypto/sha256"
	"errors"
	"iter"
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
	before []blob      // that the blobs replaced

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

// pumpAgain is the wait while the connection's outbox is full.
const pumpAgain = 5 * time.Millisecond

// show makes an announcement the present one.
func (b *board) show(sealed []byte, blobs []blob) {
	b.sealed, b.digest = sealed, sha256.Sum256(sealed[:wire.HeaderSize])
	var gone []blob
	if !sameBlobs(blobs, b.blobs) {
		for _, old := range b.before {
			if !holds(blobs, old.hash) && !holds(b.blobs, old.hash) {
				gone = append(gone, old)
			}
		}
		b.before, b.blobs = b.blobs, blobs
	}
	b.publish(gone)
}

// republish says everything again to a broker that may have forgotten it.
func (b *board) republish() { b.publish(nil) }

func (b *board) publish(gone []blob) {
	if b.sealed == nil {
		return
	}
	if b.stop != nil {
		b.stop()
	}
	b.next, b.stop = iter.Pull(b.messages(b.sealed, b.blobs, gone))
	b.first = nil
	b.pump()
}

// messages yields the blobs' parts, then the announcement, then the deletions.
func (b *board) messages(sealed []byte, blobs, gone []blob) iter.Seq[mqtt.Message] {
	return func(yield func(mqtt.Message) bool) {
		retain := func(topic string, payload []byte) bool {
			return yield(mqtt.Message{Topic: topic, Payload: payload, QoS: mqtt.AtLeastOnce, Retained: true})
		}
		for _, x := range blobs {
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
		if !retain(b.topics.Round(), sealed) {
			return
		}
		for _, x := range gone {
			for k := range wire.ChunkCount(len(x.data)) {
				if !retain(b.topics.Blob(x.hash.Topic(), transfer.ChunkPart(k)), nil) {
					return
				}
			}
			if !retain(b.topics.Blob(x.hash.Topic(), transfer.ManifestPart), nil) {
				return
			}
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
				b.stop()
				b.next, b.stop = nil, nil
				return
			}
			b.first = &m
		}
		switch err := b.conn.Publish(*b.first); {
		case errors.Is(err, mqtt.ErrBusy):
			b.retry = time.Now().Add(pumpAgain)
			return
		case err != nil: // down: everything is said again after the next connect
			b.stop()
			b.next, b.stop, b.first = nil, nil, nil
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

func holds(blobs []blob, hash wire.Digest) bool {
	for _, x := range blobs {
		if x.hash == hash {
			return true
		}
	}
	return false
}
