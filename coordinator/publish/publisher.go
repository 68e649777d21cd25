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

// Publisher maintains the retained messages of one coordinator at the broker. It publishes the blobs that the present
// announcementEnvelope names, and then the announcement; then it deletes blobs that are no longer named. The blobs of
// an announcementEnvelope stay for one more announcement that names others. Last, while the round continues, it reads
// the blobs back, to check that the broker has them, and publishes the missing parts again.
//
// After each connect it reads every blob back again, since the broker may have lost them. All methods are called on the
// owner's goroutine; now is its time.
type Publisher struct {
	conn               mqtt.Conn
	topics             mqtt.Topics
	rng                *rand.Rand
	observer           observe.Observer
	onAnnouncementSent func(now time.Time)

	isLinkUp             bool
	announcementEnvelope []byte                 // the envelope of the present announcement
	announcementDigest   wire.Digest            // of the header of announcement
	recentAnnouncements  []replacedAnnouncement // earlier announcements of this process, the oldest first
	retainedBlobs        []*retainedBlob        // the blobs that the announcement names without their data
	blobListing          BlobListing

	announcementSent  bool // on this link
	staleBlobsDeleted bool // on this link: listing.Gone

	readBack           *blobReadBack
	lastRecheckAt      time.Time                   // the last connect, or recheck for an agent
	nextQueuedMessage  func() (mqtt.Message, bool) // the messages still to be published
	stopQueuedMessages func()
	onMessagesSent     func()        // called when the connection has taken all messages
	unsentMessage      *mqtt.Message // taken from nextQueuedMessage, and not published yet
	retryPublishingAt  time.Time     // nothing is published before
}

// ListedBlob identifies the parts of a blob at the broker, so that they can be deleted.
type ListedBlob struct {
	Hash   wire.Digest
	Chunks int
}

// BlobListing lists the blobs that the broker may retain. It is in the journal before the first part of a new blob is
// published.
type BlobListing struct {
	PresentBlobs  []ListedBlob `json:"Now"`    // named by the present announcement
	PreviousBlobs []ListedBlob `json:"Before"` // replaced by those in Now
	StaleBlobs    []ListedBlob `json:"Gone"`   // to be deleted
}

// New makes a publisher. onAnnouncementSent is called each time the connection has taken the present announcement.
func New(conn mqtt.Conn, topics mqtt.Topics, rng *rand.Rand, o observe.Observer,
	onAnnouncementSent func(now time.Time)) *Publisher {
	return &Publisher{conn: conn, topics: topics, rng: rng, observer: o, onAnnouncementSent: onAnnouncementSent}
}

// RestoreListing sets the listing from the journal, before the first announcement.
func (b *Publisher) RestoreListing(l BlobListing) { b.blobListing = l }

// AnnouncementDigest returns the digest of the present announcement; zero before there is one.
func (b *Publisher) AnnouncementDigest() wire.Digest { return b.announcementDigest }

// IsPresentAnnouncement reports whether a message is the present announcement.
func (b *Publisher) IsPresentAnnouncement(envelope []byte) bool {
	return bytes.Equal(envelope, b.announcementEnvelope)
}

// outboxRetryDelay is the wait while the connection's outbox is full.
const outboxRetryDelay = 5 * time.Millisecond

// PlanListing returns the listing that must be in the journal before an announcement that names these blobs is
// published.
func (b *Publisher) PlanListing(blobs []Blob) BlobListing {
	var now []ListedBlob
	for _, x := range blobs {
		now = append(now, x.asListedBlob())
	}
	if slices.Equal(now, b.blobListing.PresentBlobs) {
		return b.blobListing
	}
	p := BlobListing{PresentBlobs: now, PreviousBlobs: b.blobListing.PresentBlobs}
	if !b.staleBlobsDeleted { // else they were deleted, and the link has held
		p.StaleBlobs = slices.Clone(b.blobListing.StaleBlobs)
	}
	p.StaleBlobs = append(p.StaleBlobs, b.blobListing.PreviousBlobs...)
	p.StaleBlobs = slices.DeleteFunc(p.StaleBlobs,
		func(x ListedBlob) bool {
			return slices.Contains(p.PresentBlobs, x) || slices.Contains(p.PreviousBlobs, x)
		})
	return p
}

// Announce publishes an announcement and the blobs that it names; Plan was called with the same blobs before. Parts
// that an earlier process may have published are not published again, unless resealed says that their seal has changed.
func (b *Publisher) Announce(now time.Time, sealed []byte, blobs []Blob, resealed bool) {
	list := b.PlanListing(blobs)
	b.HaltPublishing()
	var posts []*retainedBlob
	for _, x := range blobs {
		i := slices.IndexFunc(b.retainedBlobs,
			func(p *retainedBlob) bool { return p.Ref.ManifestHash == x.Ref.ManifestHash })
		if i >= 0 {
			b.retainedBlobs[i].Blob = x // the older copy of its bytes can go
			posts = append(posts, b.retainedBlobs[i])
		} else {
			// A blob that an earlier process has listed may be at the broker.
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

// replacedAnnouncement is an announcement that another has replaced.
type replacedAnnouncement struct {
	digest     wire.Digest
	replacedAt time.Time
}

// maxHelloDelay is how long a hello may be on its way. If rounds are shorter, it names an announcement of several
// rounds ago.
const maxHelloDelay = 10 * time.Second

// retireAnnouncement moves the present announcement to recentAnnouncements, and removes entries older than
// maxHelloDelay from it, except the newest.
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

// IsRecentAnnouncement reports whether a hello may name an announcement: the present one, its predecessor, or one that
// was replaced at most maxHelloDelay ago. Announcements of earlier processes do not count: hellos that name them may be
// replayed, and agents say hello again when asked.
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

// LinkUp checks and publishes everything again: the broker may have lost it.
func (b *Publisher) LinkUp(now time.Time) {
	b.HaltPublishing()
	b.isLinkUp, b.announcementSent, b.staleBlobsDeleted, b.lastRecheckAt = true, false, false, now
	b.resetBlobChecks()
	b.AdvanceBeforeWait(now)
}

// RepeatAnnouncement publishes the announcement again: somebody else has published on its topic, or the broker has lost
// it.
func (b *Publisher) RepeatAnnouncement(now time.Time) {
	b.announcementSent = false
	b.AdvanceBeforeWait(now)
}

// LinkDown stops publishing and reading back until the next LinkUp.
func (b *Publisher) LinkDown() {
	b.HaltPublishing()
	b.isLinkUp, b.staleBlobsDeleted = false, false
}

// HaltPublishing stops publishing and reading back. AdvanceBeforeWait resumes both if they are still needed.
func (b *Publisher) HaltPublishing() {
	if b.stopQueuedMessages != nil {
		b.stopQueuedMessages()
	}
	b.nextQueuedMessage, b.stopQueuedMessages, b.onMessagesSent, b.unsentMessage, b.retryPublishingAt = nil, nil, nil,
		nil, time.Time{}
	b.stopReadBack()
}

// AdvanceBeforeWait takes the next steps, until everything is done or the broker must answer.
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

// RetainedMessage returns a message that the broker retains; with an empty payload, it deletes the retained message of
// the topic.
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

// publishQueuedMessages publishes as much as the connection takes.
func (b *Publisher) publishQueuedMessages(now time.Time) {
	for {
		if b.unsentMessage == nil {
			m, ok := b.nextQueuedMessage()
			if !ok {
				done := b.onMessagesSent // which may begin something else
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
		case err != nil: // down: everything is published again after the next connect
			b.LinkDown()
			return
		}
		b.unsentMessage = nil
	}
}

// Deadline returns when AdvanceBeforeWait is to be called, if nothing happens before.
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
		if !p.allPartsSent && b.nextQueuedMessage == nil { // else its turn comes
			earlier(p.republishAt)
		}
	}
	return at, b.isLinkUp && !at.IsZero()
}
