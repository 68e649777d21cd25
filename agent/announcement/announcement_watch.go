// Package announcement monitors the arrival of the coordinator's announcements. It requests a lost announcement again,
// diagnoses why an announcement is missing, and reports an overdue announcement.
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

// AnnouncementWatch is the part of an agent that monitors announcements.
type AnnouncementWatch struct {
	core                *part.AgentCore
	listCoordinatorKeys func() []ed25519.PublicKey

	nextRequestAt        time.Time     // time of the next request for the announcement
	requestRetryInterval time.Duration // interval between requests; 0 means that no announcement is expected
	age                  announcementStaleness
	search               missingCauseSearch
}

const (
	// minRetryInterval and maxRetryInterval bound the interval between two requests for the announcement. The interval
	// doubles after each request.
	minRetryInterval = 30 * time.Second
	maxRetryInterval = 10 * time.Minute
)

// NewAnnouncementWatch returns an AnnouncementWatch. coordinatorKeys returns the coordinator's currently valid public
// keys.
func NewAnnouncementWatch(core *part.AgentCore, coordinatorKeys func() []ed25519.PublicKey) *AnnouncementWatch {
	return &AnnouncementWatch{core: core, listCoordinatorKeys: coordinatorKeys}
}

// LinkUp implements part.LinkFollower. It requests the announcement in case the retained message is lost, because
// without an announcement the agent sends nothing that the coordinator could answer.
func (w *AnnouncementWatch) LinkUp() {
	w.planAnnouncementRequest(minRetryInterval)
	w.search.planForNewLink(w.core.Loop.Now())
}

// LinkDown implements part.LinkFollower.
func (w *AnnouncementWatch) LinkDown(error) {
	w.requestRetryInterval = 0
	w.search.stopOnLinkLoss()
}

// planAnnouncementRequest schedules a request for the announcement. A jitter of ±25 % spreads the load when all agents
// reconnect after a broker restart.
func (w *AnnouncementWatch) planAnnouncementRequest(interval time.Duration) {
	jitter := time.Duration(w.core.Rand.Int64N(int64(interval / 2)))
	w.nextRequestAt, w.requestRetryInterval = w.core.Loop.Now().Add(interval*3/4+jitter), interval
}

// RequestAnnouncementPeriodically schedules periodic requests for the announcement. An agent that sends no hello
// message needs these requests, because the coordinator cannot notify it of a lost announcement.
func (w *AnnouncementWatch) RequestAnnouncementPeriodically() {
	w.planAnnouncementRequest(maxRetryInterval)
}

// RequestLostAnnouncement requests the announcement again if the digest of the last received announcement differs from
// named, the digest that the coordinator has sent.
func (w *AnnouncementWatch) RequestLostAnnouncement(named wire.Digest) {
	if named != w.core.LastAnnouncement.EnvelopeDigest {
		w.requestAnnouncement()
	}
}

// requestAnnouncement renews the subscription to the announcement topic, which makes the broker send the retained
// announcement again.
func (w *AnnouncementWatch) requestAnnouncement() {
	if !w.core.IsUplinkBudgetSpent() {
		w.core.Conn.Subscribe(mqtt.AtMostOnce, w.core.Topics.Announcement())
	}
}

// ReceiveAnnouncement implements part.AnnouncementReceiver.
func (w *AnnouncementWatch) ReceiveAnnouncement(a agentround.AnnouncementReceived) {
	w.requestRetryInterval = 0
	w.unsubscribeOtherFederations()
	w.search.hasValidAnnouncement, w.search.nextStepAt = true, time.Time{}
	w.reportMissingReason("")
	w.restartStalenessWait(&a)
}

// Deadline implements part.TickHook.
func (w *AnnouncementWatch) Deadline() (time.Time, bool) {
	var next part.EarliestDeadline
	next.Add(w.nextRequestAt, w.requestRetryInterval > 0)
	next.Add(w.search.nextStepAt, !w.search.nextStepAt.IsZero())
	next.Add(w.age.staleDeadline())
	return next.At, next.IsSet
}

// Tick implements part.TickHook.
func (w *AnnouncementWatch) Tick(now time.Time) {
	if w.requestRetryInterval > 0 && !now.Before(w.nextRequestAt) {
		w.planAnnouncementRequest(min(2*w.requestRetryInterval, maxRetryInterval))
		w.requestAnnouncement()
	}
	w.takeNextSearchStep(now)
	w.reportIfStale(now)
}

// Metrics lists the metrics that the events of this package update.
var Metrics = []*observe.Metric{stale}
