package announcement

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// announcementStaleness detects that no new announcement arrives. An attacker cannot forge announcements, but could
// withhold them to keep the agent in the current round. A next announcement is due only while a round is open.
type announcementStaleness struct {
	latestIssueTime     uint64        // latest issue time of a received announcement
	longestRoundTimeout time.Duration // longest timeout of an announced round
	staleAt             time.Time     // time from which the newest announcement is stale; zero if no other is due
	isStaleReported     bool
}

// staleAfterRounds is the wait for the next announcement, in multiples of the longest round timeout.
const staleAfterRounds = 3

// restartStalenessWait restarts the wait for the next announcement if the received one has a newer position or issue
// time than all previous ones.
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

// ForgetIssueTimes resets the latest issue time, after a root document has replaced the coordinator's keys.
func (w *AnnouncementWatch) ForgetIssueTimes() { w.age.latestIssueTime = 0 }

// PostponeStaleness extends the wait for the next announcement by a time in which the agent receives none.
func (w *AnnouncementWatch) PostponeStaleness(by time.Duration) {
	if !w.age.staleAt.IsZero() {
		w.age.staleAt = w.age.staleAt.Add(by)
	}
}

// staleDeadline returns the time from which the newest announcement is stale, if that is not reported yet.
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

// AnnouncementsStale reports that an expected announcement has not arrived. StaleFor is 0 once one has arrived.
type AnnouncementsStale struct{ StaleFor time.Duration }

// Describe implements observe.Event.
func (e AnnouncementsStale) Describe(d *observe.EventDescription) {
	const condition = "stale announcements"
	d.SetBoolGauge(stale, e.StaleFor > 0)
	if e.StaleFor == 0 {
		d.Log(observe.Info, "announcements received again")
		d.ResolveCondition(condition)
		return
	}
	const remedy = "check that the coordinator is running (`coordinator status`); if it is, the broker may be " +
		"blocking its announcements: run `agentd doctor`"
	d.Log(observe.Error, "no new announcement while a round is open", "stale_for", e.StaleFor)
	d.RaiseCondition(condition,
		fmt.Sprintf("a round is open, but no new announcement has arrived for %s (three times the maximum "+
			"duration of a round)", e.StaleFor), remedy)
}
