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

// publisher maintains the broker's retained messages. It publishes the blobs that the present announcement names, then
// the announcement; then it deletes blobs that are no longer named. The blobs of an announcement stay for one more
// announcement that names others. Last, while the round goes on, it reads the blobs back, to check that the broker has
// them, and publishes the missing parts again.
//
// After each connect it reads every blob back again: the broker may have lost them.
type publisher struct {
	conn               mqtt.Conn
	topics             mqtt.Topics
	rng                *rand.Rand
	reportBlobCheck    func(RetainedBlobChecked)
	onAnnouncementSent func(now time.Time) // the connection has taken the announcement

	up                  bool
	announcementBytes   []byte
	digest              wire.Digest            // of the present announcement's envelope
	recentAnnouncements []replacedAnnouncement // earlier announcements of this process, the oldest first
	retainedBlobs       []*retainedBlob        // of the blobs that it names and does not hold inline
	publishedBlobs      publishedBlobs

	announcementSent  bool // in this session
	staleBlobsDeleted bool // in this session: listed.Gone

	readBack       *blobReadBack
	lastRecheckAt  time.Time                   // the last connect, or recheck for an agent
	nextMessage    func() (mqtt.Message, bool) // the messages still to be published
	stopMessages   func()
	onMessagesSent func()        // called when the connection has taken all of next
	unsentMessage  *mqtt.Message // taken from next, and not published yet
	retryAt        time.Time     // nothing is published before
}

// publishedBlobEntry has what is needed to delete a blob.
type publishedBlobEntry struct {
	Hash   wire.Digest
	Chunks int
}

// publishedBlobs lists the blobs that may be retained at the broker. It is on disk, in the journal, before the first
// part of a new one is published.
type publishedBlobs struct {
	Now    []publishedBlobEntry // named by the present announcement
	Before []publishedBlobEntry // the blobs that these replaced
	Gone   []publishedBlobEntry // to be deleted
}

// pumpAgain is the wait while the connection's outbox is full.
const pumpAgain = 5 * time.Millisecond

// planPublishedBlobs returns the list that must be on disk before an announcement that names these blobs is published.
func (b *publisher) planPublishedBlobs(blobs []blob) publishedBlobs {
	var now []publishedBlobEntry
	for _, x := range blobs {
		now = append(now, x.publishedEntry())
	}
	if slices.Equal(now, b.publishedBlobs.Now) {
		return b.publishedBlobs
	}
	p := publishedBlobs{Now: now, Before: b.publishedBlobs.Now}
	if !b.staleBlobsDeleted { // else they were deleted, and the link has held
		p.Gone = slices.Clone(b.publishedBlobs.Gone)
	}
	p.Gone = append(p.Gone, b.publishedBlobs.Before...)
	p.Gone = slices.DeleteFunc(p.Gone,
		func(x publishedBlobEntry) bool { return slices.Contains(p.Now, x) || slices.Contains(p.Before, x) })
	return p
}

// setAnnouncement makes an announcement the present one, whose blobs plan was asked for. What the broker may have of
// them from before counts unless they are sealed otherwise now.
func (b *publisher) setAnnouncement(now time.Time, sealed []byte, blobs []blob, resealed bool) {
	list := b.planPublishedBlobs(blobs)
	b.halt()
	var posts []*retainedBlob
	for _, x := range blobs {
		i := slices.IndexFunc(b.retainedBlobs,
			func(p *retainedBlob) bool { return p.ref.ManifestHash == x.ref.ManifestHash })
		if i >= 0 {
			b.retainedBlobs[i].blob = x // the older copy of its bytes can go
			posts = append(posts, b.retainedBlobs[i])
		} else {
			// A blob that an earlier process has listed may be at the broker.
			posts = append(posts, newRetainedBlob(x, !resealed && slices.Contains(b.publishedBlobs.Now,
				x.publishedEntry())))
		}
	}
	b.retireAnnouncement(now)
	b.announcementBytes, b.digest, b.retainedBlobs = sealed, sha256.Sum256(sealed[:wire.HeaderSize]), posts
	b.publishedBlobs, b.announcementSent, b.staleBlobsDeleted = list, false, false
	b.publishPending(now)
}

// replacedAnnouncement is an announcement that another has replaced.
type replacedAnnouncement struct {
	digest     wire.Digest
	replacedAt time.Time
}

// maxHelloDelay is how long a hello may be on its way. If rounds are shorter, it names an announcement of several
// rounds ago.
const maxHelloDelay = 10 * time.Second

// retireAnnouncement moves the present announcement to recent, and removes entries older than maxHelloDelay from it,
// except the newest.
func (b *publisher) retireAnnouncement(now time.Time) {
	if b.announcementBytes == nil {
		return
	}
	b.recentAnnouncements = append(b.recentAnnouncements, replacedAnnouncement{b.digest, now})
	old := func(r replacedAnnouncement) bool { return now.Sub(r.replacedAt) > maxHelloDelay }
	n := 0
	for n < len(b.recentAnnouncements)-1 && old(b.recentAnnouncements[n]) {
		n++
	}
	b.recentAnnouncements = slices.Delete(b.recentAnnouncements, 0, n)
}

// isRecent reports whether a hello may name this announcement: the present one, the one before, or one that was
// replaced at most maxHelloDelay ago. Announcements of earlier processes do not count: hellos that name them may be
// replayed, and agents say hello again when asked.
func (b *publisher) isRecent(announcement wire.Digest, now time.Time) bool {
	if announcement == b.digest {
		return true
	}
	for i, r := range b.recentAnnouncements {
		if r.digest == announcement {
			return i == len(b.recentAnnouncements)-1 || now.Sub(r.replacedAt) <= maxHelloDelay
		}
	}
	return false
}

// handleConnect has everything checked and published again: the broker may have lost it.
func (b *publisher) handleConnect(now time.Time) {
	b.halt()
	b.up, b.announcementSent, b.staleBlobsDeleted, b.lastRecheckAt = true, false, false, now
	b.resetBlobChecks()
	b.publishPending(now)
}

// republishAnnouncement publishes the announcement again, over another coordinator's.
func (b *publisher) republishAnnouncement(now time.Time) {
	b.announcementSent = false
	b.publishPending(now)
}

func (b *publisher) handleDisconnect() {
	b.halt()
	b.up, b.staleBlobsDeleted = false, false
}

// halt stops what is under way; pump begins it again if it is still needed.
func (b *publisher) halt() {
	if b.stopMessages != nil {
		b.stopMessages()
	}
	b.nextMessage, b.stopMessages, b.onMessagesSent, b.unsentMessage, b.retryAt = nil, nil, nil, nil, time.Time{}
	b.stopReadBack()
}

// publishPending takes the next steps, until all is done or the broker must answer.
func (b *publisher) publishPending(now time.Time) {
	for b.up && b.announcementBytes != nil && !now.Before(b.retryAt) {
		b.retryAt = time.Time{}
		if b.nextMessage != nil {
			b.publishQueuedMessages(now)
			continue
		}
		unsent := slices.IndexFunc(b.retainedBlobs, func(p *retainedBlob) bool {
			return !p.allPartsSent &&
				!now.Before(p.republishAt)
		})
		unchecked := slices.IndexFunc(b.retainedBlobs, func(p *retainedBlob) bool { return !p.allPartsReturned })
		switch {
		case unsent >= 0:
			p := b.retainedBlobs[unsent]
			b.startPublishing(p.missingMessages(b.topics), func() { p.allPartsSent, p.publishedInSession = true, true })
		case !b.announcementSent:
			b.startPublishing(slices.Values([]mqtt.Message{retainedMessage(b.topics.Announcement(),
				b.announcementBytes)}), func() {
				b.announcementSent = true
				b.onAnnouncementSent(now)
			})
		case b.hasPartRequests():
			b.startPublishing(b.requestedMessages(), func() {})
		case !b.staleBlobsDeleted:
			b.startPublishing(b.staleBlobDeletions(), func() { b.staleBlobsDeleted = true })
		case b.readBack != nil:
			b.tickReadBack(now)
			return
		case unchecked >= 0 && b.retainedBlobs[unchecked].allPartsSent:
			b.startReadBack(now, b.retainedBlobs[unchecked])
		default:
			return
		}
	}
	b.tickReadBack(now)
}

func retainedMessage(topic string, payload []byte) mqtt.Message {
	return mqtt.Message{Topic: topic, Payload: payload, QoS: mqtt.AtMostOnce, Retained: true}
}

func (b *publisher) startPublishing(messages iter.Seq[mqtt.Message], done func()) {
	b.nextMessage, b.stopMessages = iter.Pull(messages)
	b.onMessagesSent = done
}

func (b *publisher) staleBlobDeletions() iter.Seq[mqtt.Message] {
	return func(yield func(mqtt.Message) bool) {
		for _, x := range b.publishedBlobs.Gone {
			for k := range x.Chunks {
				if !yield(retainedMessage(b.topics.Blob(x.Hash.TopicLevel(), transfer.ChunkPart(k)), nil)) {
					return
				}
			}
			if !yield(retainedMessage(b.topics.Blob(x.Hash.TopicLevel(), transfer.ManifestPart), nil)) {
				return
			}
		}
	}
}

// publishQueuedMessages publishes as much as the connection takes.
func (b *publisher) publishQueuedMessages(now time.Time) {
	for {
		if b.unsentMessage == nil {
			m, ok := b.nextMessage()
			if !ok {
				done := b.onMessagesSent // which may begin something else
				b.nextMessage, b.stopMessages, b.onMessagesSent = nil, nil, nil
				done()
				return
			}
			b.unsentMessage = &m
		}
		switch err := b.conn.Publish(*b.unsentMessage); {
		case errors.Is(err, mqtt.ErrBusy):
			b.retryAt = now.Add(pumpAgain)
			return
		case err != nil: // down: everything is published again after the next connect
			b.handleDisconnect()
			return
		}
		b.unsentMessage = nil
	}
}

// nextTickAt returns when pump wants to be called, if nothing comes before.
func (b *publisher) nextTickAt() (at time.Time, ok bool) {
	earlier := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if b.readBack != nil {
		t, _ := b.readBack.puller.Deadline()
		earlier(t)
	}
	earlier(b.retryAt)
	for _, p := range b.retainedBlobs {
		if !p.allPartsSent && b.nextMessage == nil { // else its turn comes
			earlier(p.republishAt)
		}
	}
	return at, b.up && !at.IsZero()
}
