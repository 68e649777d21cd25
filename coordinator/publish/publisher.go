package publish

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// Publisher maintains the coordinator's retained messages at the broker. It publishes the blobs of the current
// announcement, then the announcement, and then deletes unused blobs. Blobs of the previous announcement are kept until
// the blobs change again.
//
// While the round continues, the publisher reads the blobs back and publishes missing parts again. It repeats this
// after each connect, because the broker may have lost data. All methods must be called on the owner goroutine, with
// its current time.
type Publisher struct {
	conn               mqtt.Conn
	topics             mqtt.Topics
	rng                *rand.Rand
	observer           observe.Observer
	onAnnouncementSent func(now time.Time)

	isLinkUp             bool
	announcementEnvelope []byte                 // envelope of the current announcement
	announcementDigest   wire.Digest            // digest of the announcement's header
	recentAnnouncements  []replacedAnnouncement // earlier announcements of this process, oldest first
	retainedBlobs        []*retainedBlob        // blobs that the announcement refers to but does not contain
	blobListing          BlobListing

	announcementSent  bool // true if the announcement was sent over this connection
	staleBlobsDeleted bool // true if blobListing.StaleBlobs were deleted over this connection

	readBack           *blobReadBack
	lastRecheckAt      time.Time                   // time of the last connect or of the last RecheckBlobs
	nextQueuedMessage  func() (mqtt.Message, bool) // returns the next message to publish
	stopQueuedMessages func()
	onMessagesSent     func()        // called when the connection has accepted all messages
	unsentMessage      *mqtt.Message // message from nextQueuedMessage that is not published yet
	retryPublishingAt  time.Time     // time before which no message is published
}

// ListedBlob identifies the parts of a blob at the broker, for later deletion.
type ListedBlob struct {
	Hash   wire.Digest
	Chunks int
}

// BlobListing lists the blobs that the broker may retain. It is written to the journal before the first part of a new
// blob is published.
type BlobListing struct {
	PresentBlobs  []ListedBlob `json:"Now"`    // blobs of the current announcement
	PreviousBlobs []ListedBlob `json:"Before"` // blobs that PresentBlobs replaced
	StaleBlobs    []ListedBlob `json:"Gone"`   // blobs to be deleted
}

// New returns a Publisher. It calls onAnnouncementSent each time the connection has accepted the current announcement.
func New(conn mqtt.Conn, topics mqtt.Topics, rng *rand.Rand, o observe.Observer,
	onAnnouncementSent func(now time.Time)) *Publisher {
	return &Publisher{conn: conn, topics: topics, rng: rng, observer: o, onAnnouncementSent: onAnnouncementSent}
}

// RestoreListing sets the blob listing from the journal. It must be called before the first announcement.
func (b *Publisher) RestoreListing(l BlobListing) { b.blobListing = l }

// AnnouncementDigest returns the digest of the current announcement's header. It returns zero before the first
// announcement.
func (b *Publisher) AnnouncementDigest() wire.Digest { return b.announcementDigest }

// IsPresentAnnouncement reports whether an envelope is the current announcement.
func (b *Publisher) IsPresentAnnouncement(envelope []byte) bool {
	return bytes.Equal(envelope, b.announcementEnvelope)
}

// outboxRetryDelay is the retry delay while the connection's outbox is full.
const outboxRetryDelay = 5 * time.Millisecond

// PlanListing returns the listing to write to the journal before an announcement with these blobs is published.
func (b *Publisher) PlanListing(blobs []Blob) BlobListing {
	var now []ListedBlob
	for _, x := range blobs {
		now = append(now, x.asListedBlob())
	}
	if slices.Equal(now, b.blobListing.PresentBlobs) {
		return b.blobListing
	}
	p := BlobListing{PresentBlobs: now, PreviousBlobs: b.blobListing.PresentBlobs}
	if !b.staleBlobsDeleted { // otherwise the stale blobs were deleted over the current connection
		p.StaleBlobs = slices.Clone(b.blobListing.StaleBlobs)
	}
	p.StaleBlobs = append(p.StaleBlobs, b.blobListing.PreviousBlobs...)
	p.StaleBlobs = slices.DeleteFunc(p.StaleBlobs,
		func(x ListedBlob) bool {
			return slices.Contains(p.PresentBlobs, x) || slices.Contains(p.PreviousBlobs, x)
		})
	return p
}

// Announce publishes an announcement and its blobs. The caller must have called PlanListing with the same blobs. Parts
// that an earlier process may have published are not published again, unless resealed is true because they were
// encrypted with a new key.
func (b *Publisher) Announce(now time.Time, sealed []byte, blobs []Blob, resealed bool) {
	list := b.PlanListing(blobs)
	b.HaltPublishing()
	var posts []*retainedBlob
	for _, x := range blobs {
		i := slices.IndexFunc(b.retainedBlobs,
			func(p *retainedBlob) bool { return p.Ref.ManifestHash == x.Ref.ManifestHash })
		if i >= 0 {
			b.retainedBlobs[i].Blob = x // releases the older copy of the data
			posts = append(posts, b.retainedBlobs[i])
		} else {
			// An earlier process may have published a listed blob.
			posts = append(posts, newRetainedBlob(x, !resealed && slices.Contains(b.blobListing.PresentBlobs,
				x.asListedBlob())))
		}
	}
	b.retireAnnouncement(now)
	b.announcementEnvelope, b.announcementDigest, b.retainedBlobs = sealed, sha256.Sum256(sealed[:wire.HeaderSize]),
		posts
	b.blobListing, b.announcementSent, b.staleBlobsDeleted = list, false, false
	b.AdvanceBeforeWait(now)
}

// replacedAnnouncement is an earlier announcement and the time of its replacement.
type replacedAnnouncement struct {
	digest     wire.Digest
	replacedAt time.Time
}

// maxHelloDelay is the maximum time for which a hello may be in transit. If rounds are shorter, a hello may refer to an
// announcement from several rounds ago.
const maxHelloDelay = 10 * time.Second

// retireAnnouncement appends the current announcement to recentAnnouncements. It removes entries older than
// maxHelloDelay except the newest.
func (b *Publisher) retireAnnouncement(now time.Time) {
	if b.announcementEnvelope == nil {
		return
	}
	b.recentAnnouncements = append(b.recentAnnouncements, replacedAnnouncement{b.announcementDigest, now})
	old := func(r replacedAnnouncement) bool { return now.Sub(r.replacedAt) > maxHelloDelay }
	n := 0
	for n < len(b.recentAnnouncements)-1 && old(b.recentAnnouncements[n]) {
		n++
	}
	b.recentAnnouncements = slices.Delete(b.recentAnnouncements, 0, n)
}

// IsRecentAnnouncement reports whether a hello may refer to the announcement with the given digest. It accepts the
// current announcement, the previous announcement, and announcements replaced at most maxHelloDelay ago. It rejects
// announcements of earlier processes, because hellos that refer to them may be replayed; agents repeat their hello on
// request.
func (b *Publisher) IsRecentAnnouncement(announcement wire.Digest, now time.Time) bool {
	if announcement == b.announcementDigest {
		return true
	}
	for i, r := range b.recentAnnouncements {
		if r.digest == announcement {
			return i == len(b.recentAnnouncements)-1 || now.Sub(r.replacedAt) <= maxHelloDelay
		}
	}
	return false
}

// LinkUp publishes and checks all retained messages again after a connect, because the broker may have lost them.
func (b *Publisher) LinkUp(now time.Time) {
	b.HaltPublishing()
	b.isLinkUp, b.announcementSent, b.staleBlobsDeleted, b.lastRecheckAt = true, false, false, now
	b.resetBlobChecks()
	b.AdvanceBeforeWait(now)
}

// RepeatAnnouncement publishes the announcement again, because another client overwrote it or the broker lost it.
func (b *Publisher) RepeatAnnouncement(now time.Time) {
	b.announcementSent = false
	b.AdvanceBeforeWait(now)
}

// LinkDown stops publishing and reading back until the next LinkUp.
func (b *Publisher) LinkDown() {
	b.HaltPublishing()
	b.isLinkUp, b.staleBlobsDeleted = false, false
}

// HaltPublishing stops publishing blobs and reading them back. AdvanceBeforeWait resumes both if they are still needed.
func (b *Publisher) HaltPublishing() {
	if b.stopQueuedMessages != nil {
		b.stopQueuedMessages()
	}
	b.nextQueuedMessage, b.stopQueuedMessages, b.onMessagesSent, b.unsentMessage, b.retryPublishingAt = nil, nil, nil,
		nil, time.Time{}
	b.stopReadBack()
}

// AdvanceBeforeWait publishes messages and checks blobs until nothing remains to be done or the publisher must wait for
// a message from the broker.
func (b *Publisher) AdvanceBeforeWait(now time.Time) {
	for b.isLinkUp && b.announcementEnvelope != nil && !now.Before(b.retryPublishingAt) {
		b.retryPublishingAt = time.Time{}
		if b.nextQueuedMessage != nil {
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
			b.startPublishing(p.missingPartMessages(b.topics), func() {
				p.allPartsSent, p.publishedInSession = true,
					true
			})
		case !b.announcementSent:
			b.startPublishing(slices.Values([]mqtt.Message{RetainedMessage(b.topics.Announcement(),
				b.announcementEnvelope)}), func() {
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

// RetainedMessage returns a retained message. An empty payload deletes the topic's retained message.
func RetainedMessage(topic string, payload []byte) mqtt.Message {
	return mqtt.Message{Topic: topic, Payload: payload, QoS: mqtt.AtMostOnce, Retained: true}
}

func (b *Publisher) startPublishing(messages iter.Seq[mqtt.Message], done func()) {
	b.nextQueuedMessage, b.stopQueuedMessages = iter.Pull(messages)
	b.onMessagesSent = done
}

func (b *Publisher) staleBlobDeletions() iter.Seq[mqtt.Message] {
	return func(yield func(mqtt.Message) bool) {
		for _, x := range b.blobListing.StaleBlobs {
			for k := range x.Chunks {
				if !yield(RetainedMessage(b.topics.BlobPart(x.Hash.TopicLevel(), transfer.ChunkPartName(k)), nil)) {
					return
				}
			}
			if !yield(RetainedMessage(b.topics.BlobPart(x.Hash.TopicLevel(), transfer.ManifestPartName), nil)) {
				return
			}
		}
	}
}

// publishQueuedMessages publishes messages until the queue is empty or the outbox is full.
func (b *Publisher) publishQueuedMessages(now time.Time) {
	for {
		if b.unsentMessage == nil {
			m, ok := b.nextQueuedMessage()
			if !ok {
				done := b.onMessagesSent // The callback may start to publish other messages.
				b.nextQueuedMessage, b.stopQueuedMessages, b.onMessagesSent = nil, nil, nil
				done()
				return
			}
			b.unsentMessage = &m
		}
		switch err := b.conn.Publish(*b.unsentMessage); {
		case errors.Is(err, mqtt.ErrOutboxFull):
			b.retryPublishingAt = now.Add(outboxRetryDelay)
			return
		case err != nil: // the connection is down; LinkUp publishes all messages again
			b.LinkDown()
			return
		}
		b.unsentMessage = nil
	}
}

// Deadline returns the time by which AdvanceBeforeWait must be called again. It returns false if no call is needed.
func (b *Publisher) Deadline() (at time.Time, ok bool) {
	earlier := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if b.readBack != nil {
		t, _ := b.readBack.puller.Deadline()
		earlier(t)
	}
	earlier(b.retryPublishingAt)
	for _, p := range b.retainedBlobs {
		// Otherwise the blob is published after the queued messages.
		if !p.allPartsSent && b.nextQueuedMessage == nil {
			earlier(p.republishAt)
		}
	}
	return at, b.isLinkUp && !at.IsZero()
}
