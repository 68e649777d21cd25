package announcement

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// announcementStaleness detects that no new announcement arrives while a round is open. An attacker cannot forge
// announcements but could withhold them to keep the agent in the current round.
type announcementStaleness struct {
	latestIssueTime     uint64        // latest issue time of a received announcement
	longestRoundTimeout time.Duration // longest timeout of an announced round
	// time when the newest announcement becomes stale; zero if no further announcement is expected
	staleAt         time.Time
	isStaleReported bool
}

// staleAfterRounds is the time after which an announcement is stale, in multiples of the longest round timeout.
const staleAfterRounds = 3

// restartStalenessWait restarts the wait for the next announcement if the received announcement is newer, by position
// or issue time, than all previous ones.
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

// ForgetIssueTimes resets the latest issue time. It is called after a root document has replaced the coordinator's
// keys.
func (w *AnnouncementWatch) ForgetIssueTimes() { w.age.latestIssueTime = 0 }

// PostponeStaleness extends the wait for the next announcement by a period in which the agent receives no
// announcements.
func (w *AnnouncementWatch) PostponeStaleness(by time.Duration) {
	if !w.age.staleAt.IsZero() {
		w.age.staleAt = w.age.staleAt.Add(by)
	}
}

// staleDeadline returns the time when the newest announcement becomes stale. The second result is false if there is no
// such time or the agent has already reported the announcement as stale.
func (g *announcementStaleness) staleDeadline() (time.Time, bool) {
	return g.staleAt, !g.staleAt.IsZero() && !g.isStaleReported
}

// reportIfStale reports the newest announcement as stale, once, if the announcement's deadline has passed.
func (w *AnnouncementWatch) reportIfStale(now time.Time) {
	if at, planned := w.age.staleDeadline(); planned && !now.Before(at) {
		w.age.isStaleReported = true
		w.core.Observer.Observe(AnnouncementsStale{StaleFor: staleAfterRounds * w.age.longestRoundTimeout})
	}
}

var stale = observe.Gauge("announcements_stale",
	"1 if a round is open but no new announcement has arrived for three times the maximum round duration.")

// AnnouncementsStale reports that an expected announcement has not arrived. StaleFor is 0 after the announcement has
// arrived.
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
