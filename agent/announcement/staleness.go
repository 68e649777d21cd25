package announcement

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// announcementStaleness measures the time since the newest announcement. An attacker who withholds later announcements
// cannot forge one, but can keep the agent in the present round. The next announcement is known to be due only while a
// round is open.
type announcementStaleness struct {
	latestIssueTime     uint64        // the latest time in an announcement
	longestRoundTimeout time.Duration // the longest time limit of an announced round
	staleAt             time.Time     // when the newest announcement is stale; zero = no other is due
	isStaleReported     bool
}

// staleAfterRounds is how many times the longest round an agent waits for the next announcement.
const staleAfterRounds = 3

// restartStalenessWait restarts the wait for the next announcement if this one is newer than all before it, by its
// position or its time.
func (w *AnnouncementWatch) restartStalenessWait(received *agentround.AnnouncementReceived) {
	g, ann := &w.age, &received.Announcement
	newer := received.Position.Compare(w.core.ObeyedPosition) > 0
	if ann.IssuedAt > g.latestIssueTime {
		g.latestIssueTime, newer = ann.IssuedAt, true
	}
	if !newer {
		return
	}
	if g.isStaleReported {
		g.isStaleReported = false
		w.core.Observer.Observe(AnnouncementsStale{})
	}
	g.longestRoundTimeout = max(g.longestRoundTimeout, time.Duration(ann.RoundTimeoutMillis)*time.Millisecond)
	if g.staleAt = (time.Time{}); ann.Phase == wire.PhaseOpen {
		g.staleAt = w.core.Loop.Now().Add(staleAfterRounds * g.longestRoundTimeout)
	}
}

// ForgetIssueTimes forgets the times in announcements, after a root document has replaced the coordinator's keys.
func (w *AnnouncementWatch) ForgetIssueTimes() { w.age.latestIssueTime = 0 }

// PostponeStaleness prolongs the wait for the next announcement, because the agent receives none for a while.
func (w *AnnouncementWatch) PostponeStaleness(by time.Duration) {
	if !w.age.staleAt.IsZero() {
		w.age.staleAt = w.age.staleAt.Add(by)
	}
}

// staleDeadline returns when the newest announcement is stale.
func (g *announcementStaleness) staleDeadline() (time.Time, bool) {
	return g.staleAt, !g.staleAt.IsZero() && !g.isStaleReported
}

// reportIfStale reports once that the newest announcement is stale.
func (w *AnnouncementWatch) reportIfStale(now time.Time) {
	if at, planned := w.age.staleDeadline(); planned && !now.Before(at) {
		w.age.isStaleReported = true
		w.core.Observer.Observe(AnnouncementsStale{StaleFor: staleAfterRounds * w.age.longestRoundTimeout})
	}
}

var stale = observe.Gauge("announcements_stale",
	"1 if a round is open but no new announcement has arrived for three times the maximum round duration.")

// AnnouncementsStale: no new announcement has arrived for a time in which one was due. StaleFor is 0 when one has
// arrived.
type AnnouncementsStale struct{ StaleFor time.Duration }

// Describe implements observe.Event.
func (e AnnouncementsStale) Describe(d *observe.EventDescription) {
	const condition = "stale announcements"
	d.SetBoolGauge(stale, e.StaleFor > 0)
	if e.StaleFor == 0 {
		d.Log(observe.Info, "announcements arrive again")
		d.ResolveCondition(condition)
		return
	}
	const remedy = "see that the coordinator runs (`coordinator status`); if it does, the broker withholds its " +
		"announcements: run `agentd doctor`"
	d.Log(observe.Error, "no new announcement although a round is open", "stale_for", e.StaleFor)
	d.RaiseCondition(condition,
		fmt.Sprintf("a round is open, but no new announcement has arrived for %s (three times the maximum "+
			"duration of a round)", e.StaleFor), remedy)
}
