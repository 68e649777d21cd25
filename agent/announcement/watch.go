// Package announcement watches whether the coordinator's announcements arrive. It asks the broker again for a lost
// announcement, finds the cause of a missing one, and reports an overdue one.
package announcement

import (
	"crypto/ed25519"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// Watch is the part of an agent that watches the announcements.
type Watch struct {
	core            *part.Core
	coordinatorKeys func() []ed25519.PublicKey

	retryAt       time.Time     // when the broker is asked again for the announcement
	retryInterval time.Duration // 0 = no announcement is expected
	age           age
	search        search
}

const (
	// minRetryInterval and maxRetryInterval limit the interval between two requests for the announcement. It doubles.
	minRetryInterval = 30 * time.Second
	maxRetryInterval = 10 * time.Minute
)

// NewWatch makes the part. coordinatorKeys returns the keys of the coordinator that are in force.
func NewWatch(core *part.Core, coordinatorKeys func() []ed25519.PublicKey) *Watch {
	return &Watch{core: core, coordinatorKeys: coordinatorKeys}
}

// LinkUp implements part.LinkFollower. The retained announcement may be lost on its way, and an agent without an
// announcement sends nothing that the coordinator could answer. So the agent asks the broker again.
func (w *Watch) LinkUp() {
	w.expect(minRetryInterval)
	w.search.up(w.core.Loop.Now())
}

// LinkDown implements part.LinkFollower.
func (w *Watch) LinkDown(error) {
	w.retryInterval = 0
	w.search.down()
}

// expect plans a request for the announcement. The time has a jitter of a quarter, since a broker that restarts loses
// all links at once.
func (w *Watch) expect(interval time.Duration) {
	jitter := time.Duration(w.core.Rand.Int64N(int64(interval / 2)))
	w.retryAt, w.retryInterval = w.core.Loop.Now().Add(interval*3/4+jitter), interval
}

// ExpectNext asks the broker for the announcement from time to time, for an agent that sends no hello: no answer would
// name an announcement that was lost.
func (w *Watch) ExpectNext() { w.expect(maxRetryInterval) }

// RequestIfLost asks the broker for the announcement if the coordinator names another one than the last received.
func (w *Watch) RequestIfLost(named wire.Digest) {
	if named != w.core.Announcement.EnvelopeDigest {
		w.request()
	}
}

// request subscribes to the announcement again, so that the broker delivers the retained one.
func (w *Watch) request() {
	if !w.core.UplinkSpent() {
		w.core.Conn.Subscribe(mqtt.AtMostOnce, w.core.Topics.Announcement())
	}
}

// ReceiveAnnouncement implements part.AnnouncementReceiver.
func (w *Watch) ReceiveAnnouncement(a agentround.AnnouncementReceived) {
	w.retryInterval = 0
	w.endSearch()
	w.search.validFound, w.search.at = true, time.Time{}
	w.reportReason("")
	w.updateAge(&a)
}

// Deadline implements part.Timer.
func (w *Watch) Deadline() (time.Time, bool) {
	var next part.Earliest
	next.Add(w.retryAt, w.retryInterval > 0)
	next.Add(w.search.at, !w.search.at.IsZero())
	next.Add(w.age.deadline())
	return next.At, next.OK
}

// Tick implements part.Timer.
func (w *Watch) Tick(now time.Time) {
	if w.retryInterval > 0 && !now.Before(w.retryAt) {
		w.expect(min(2*w.retryInterval, maxRetryInterval))
		w.request()
	}
	w.stepSearch(now)
	w.checkAge(now)
}

// Metrics are the metrics of this package's events.
var Metrics = []*observe.Metric{stale}
