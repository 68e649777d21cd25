package agent

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// announcementAge measures the time since the newest announcement. An attacker who withholds later announcements cannot
// forge one, but can keep the agent in the present round. Only an open round shows when the next announcement is due.
type announcementAge struct {
	latestIssueTime uint64        // the latest time that an announcement has told
	longestRound    time.Duration // that a round may take, of those that were announced
	staleReportAt   time.Time     // when the agent tells that it is left behind; zero = an announcement is not due
	reportedStaleAt time.Time     // since when, if it has; zero otherwise
}

// staleAfterRounds is how many of the longest round an agent waits for another announcement.
const staleAfterRounds = 3

// noteNewerAnnouncement takes note of an announcement that is later than all before it, in its order or its time.
func (a *Agent) noteNewerAnnouncement(order wire.AnnouncementPosition, ann *wire.Announcement) {
	f := &a.announcementAge
	newer := order.Compare(a.lastObeyedPosition) > 0
	if ann.IssuedAt > f.latestIssueTime {
		f.latestIssueTime, newer = ann.IssuedAt, true
	}
	if !newer {
		return
	}
	if !f.reportedStaleAt.IsZero() {
		f.reportedStaleAt = time.Time{}
		a.cfg.Observer.Observe(AnnouncementsStale{})
	}
	f.longestRound = max(f.longestRound, time.Duration(ann.RoundTimeoutMillis)*time.Millisecond)
	if f.staleReportAt = (time.Time{}); ann.Phase == wire.PhaseOpen {
		f.staleReportAt = a.owner.Now().Add(staleAfterRounds * f.longestRound)
	}
}

// postponeStaleness waits longer: the agent reads nothing for so long.
func (f *announcementAge) postponeStaleness(by time.Duration) {
	if !f.staleReportAt.IsZero() {
		f.staleReportAt = f.staleReportAt.Add(by)
	}
}

// staleAt is when the announcements are stale.
func (f *announcementAge) staleAt() (time.Time, bool) {
	return f.staleReportAt, !f.staleReportAt.IsZero() && f.reportedStaleAt.IsZero()
}

// checkAnnouncementAge tells once that no announcement has come although one was due.
func (a *Agent) checkAnnouncementAge(now time.Time) {
	f := &a.announcementAge
	if at, waits := f.staleAt(); waits && !now.Before(at) {
		f.reportedStaleAt = now
		a.cfg.Observer.Observe(AnnouncementsStale{StaleFor: staleAfterRounds * f.longestRound})
	}
}

var announcementsStale = observe.Gauge("announcements_stale",
	"1 if a round is open, but no new announcement has arrived for three times the maximum duration of a "+
		"round: the coordinator is offline, or the broker withholds its announcements.")

// AnnouncementsStale: no new announcement has arrived for a time in which one was due. StaleFor is 0 when one has
// arrived.
type AnnouncementsStale struct{ StaleFor time.Duration }

// Describe implements observe.Event.
func (e AnnouncementsStale) Describe(d *observe.Description) {
	const condition = "stale announcements"
	d.SetBool(announcementsStale, e.StaleFor > 0)
	if e.StaleFor == 0 {
		d.Log(observe.Info, "announcements arrive again")
		d.Resolve(condition)
		return
	}
	const remedy = "see that the coordinator runs (`coordinator status`); if it does, the broker withholds its " +
		"announcements: run `agentd doctor`"
	d.Log(observe.Error, "no new announcement although a round is open", "stale_for", e.StaleFor)
	d.Fail(condition,
		fmt.Sprintf("a round is open, but no new announcement has arrived for %s (three times the maximum "+
			"duration of a round)", e.StaleFor), remedy)
}
