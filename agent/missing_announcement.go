package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// MissingReason says why the agent has no valid announcement.
type MissingReason string

// The reasons.
const (
	// MissingNotRetained: the broker retains no announcement of the federation.
	MissingNotRetained MissingReason = "no_announcement"
	// MissingUntrustedKey: the announcement is signed with a key that the device does not accept.
	MissingUntrustedKey MissingReason = "wrong_key"
	// MissingOtherFederation: the coordinator with the configured key announces another federation.
	MissingOtherFederation MissingReason = "wrong_federation"
	// MissingAccessDenied: the broker's access rules withhold messages from the device.
	MissingAccessDenied MissingReason = "access"
)

// AnnouncementMissing: no valid announcement has arrived since the agent connected. Reason is empty when one has
// arrived.
type AnnouncementMissing struct {
	Reason     MissingReason
	Federation wire.Federation
	// OtherFederations are the other federations whose announcements the broker retains. With
	// MissingOtherFederation it names only the federation that the configured key announces.
	OtherFederations []wire.Federation
}

// Describe implements observe.Event.
func (e AnnouncementMissing) Describe(d *observe.Description) {
	const name = "announcement"
	if e.Reason == "" {
		d.Log(observe.Info, "announcement received")
		d.Resolve(name)
		d.Show(observe.Activity, "")
		return
	}
	d.Show(observe.Activity, fmt.Sprintf("no task: %s", e.Reason))
	switch e.Reason {
	case MissingAccessDenied: // host.BrokerTested says what to change
		d.FailReadiness(name, e.Problem(), e.Remedy())
	case MissingNotRetained: // an agent that waits for its coordinator's first start is ready
		d.Log(observe.Warn, "no announcement", "reason", e.Reason, "other_federations", e.OtherFederations)
		d.Fail(name, e.Problem(), e.Remedy())
	case MissingUntrustedKey, MissingOtherFederation:
		d.Log(observe.Error, "no announcement", "reason", e.Reason, "other_federations", e.OtherFederations)
		d.FailReadiness(name, e.Problem(), e.Remedy())
	}
}

// Problem describes the cause of a missing announcement.
func (f AnnouncementMissing) Problem() string {
	switch f.Reason {
	case MissingUntrustedKey:
		return fmt.Sprintf("the announcement of federation %s is signed with a key that this device does not accept",
			f.Federation)
	case MissingOtherFederation:
		return fmt.Sprintf("the coordinator with the configured key announces federation %s, but agentd.yaml has "+
			"federation: %s", f.others(), f.Federation)
	case MissingAccessDenied:
		return "the broker's access rules withhold messages from this user"
	case MissingNotRetained:
	}
	text := fmt.Sprintf("the broker has no announcement of federation %s", f.Federation)
	if len(f.OtherFederations) > 0 {
		text += "; other federations at this broker: " + f.others()
	}
	return text
}

// others returns the names of the other federations, separated by commas.
func (f AnnouncementMissing) others() string {
	names := make([]string, len(f.OtherFederations))
	for i, o := range f.OtherFederations {
		names[i] = string(o)
	}
	return strings.Join(names, ", ")
}

// Remedy returns the step that resolves the cause.
func (f AnnouncementMissing) Remedy() string {
	switch f.Reason {
	case MissingUntrustedKey:
		return "set identity.coordinator_key to what `coordinator key show coordinator.key` prints; a device that " +
			"joined with a token joins again (`coordinator devices rotate ID`)"
	case MissingOtherFederation:
		return fmt.Sprintf("set federation: %s in agentd.yaml and restart agentd", f.others())
	case MissingAccessDenied:
		return mqtt.LoadAccessRules
	case MissingNotRetained:
	}
	return "start the coordinator; if it runs, compare federation, broker.prefix and broker.url in agentd.yaml and " +
		"coordinator.yaml"
}

const (
	// missingAnnouncementDelay is the time from the connection to the first search for the cause of a missing
	// announcement. The test of the access rules (mqtt.SelfTest) has a result by then, unless the link is busy.
	missingAnnouncementDelay = 25 * time.Second
	// announcementSearchTime is for how long the agent receives the announcements of other federations.
	announcementSearchTime = 5 * time.Second
	// maxOtherFederations limits the names of other federations in an event.
	maxOtherFederations = 8
)

// announcementSearch finds out why no valid announcement has arrived over the present link.
type announcementSearch struct {
	at           time.Time // of the next step; zero = none is planned
	searching    bool      // the agent receives the announcements of other federations
	searched     bool      // it has done so over this link
	validFound   bool      // a valid announcement has arrived over this link
	accessDenied bool      // the access rules withhold messages, by the last test of the broker
	otherKeySeen bool      // an announcement signed with another key has arrived over this link
	reason       MissingReason
	others       []wire.Federation // sorted
}

// up plans the search for a link that has just come up.
func (m *announcementSearch) up(now time.Time) {
	*m = announcementSearch{at: now.Add(missingAnnouncementDelay), accessDenied: m.accessDenied, reason: m.reason,
		others: m.others}
}

// down ends the search. The reason remains until an announcement arrives.
func (m *announcementSearch) down() { m.at, m.searching = time.Time{}, false }

// stepAnnouncementSearch takes the next step of the search if it is due.
func (a *Agent) stepAnnouncementSearch(now time.Time) {
	m := &a.announcementSearch
	if m.at.IsZero() || now.Before(m.at) {
		return
	}
	m.at = time.Time{}
	switch {
	case a.budget.Spent():
	case m.otherKeySeen, m.accessDenied: // known already
	case !m.searched:
		m.searching, m.searched, m.at = true, true, now.Add(announcementSearchTime)
		a.conn.Subscribe(mqtt.AtMostOnce, a.cfg.Topics.AllAnnouncementsFilter())
	default:
		a.endSearch()
		a.reportMissingReason(MissingNotRetained)
	}
}

// noteOtherFederation takes an announcement of another federation during a search.
func (a *Agent) noteOtherFederation(p []byte) {
	e, err := wire.ParseEnvelope(p)
	if err != nil || e.Sender != wire.CoordinatorID || e.Federation == a.cfg.Federation {
		return
	}
	m := &a.announcementSearch
	for _, key := range a.identity.CoordinatorKeys() {
		if e.VerifyBy(a.cfg.Signatures, key) == nil {
			m.others, m.at = []wire.Federation{e.Federation}, time.Time{}
			a.endSearch()
			a.reportMissingReason(MissingOtherFederation)
			return
		}
	}
	if i, known := slices.BinarySearch(m.others, e.Federation); !known && len(m.others) < maxOtherFederations {
		m.others = slices.Insert(m.others, i, e.Federation)
	}
}

func (a *Agent) endSearch() {
	if a.announcementSearch.searching {
		a.announcementSearch.searching = false
		a.conn.Unsubscribe(a.cfg.Topics.AllAnnouncementsFilter())
	}
}

// searchEvent handles an event of the search. It reports whether the event concerns nothing else.
func (a *Agent) searchEvent(e mqtt.Event) bool {
	filter := a.cfg.Topics.AllAnnouncementsFilter()
	switch e := e.(type) {
	case mqtt.SubscribeRefused:
		if e.Filter == filter {
			a.endSearch() // the session would ask again, and leave the node in the end
			a.announcementSearch.at = a.owner.Now()
			return true
		}
	case mqtt.RefusalOver:
		return e.Filter == filter
	case mqtt.Received:
		if a.announcementSearch.searching && a.cfg.Topics.IsForeignAnnouncement(e.Topic) {
			a.noteOtherFederation(e.Payload)
			return true
		}
	}
	return false
}

// noteAccessTest notes the result of the test of the broker. Once the rules let messages through, the subscriptions are
// made again, so that the broker delivers what it retains.
func (a *Agent) noteAccessTest(r mqtt.SelfTestResult) {
	m := &a.announcementSearch
	was := m.accessDenied
	m.accessDenied = r == mqtt.SelfTestDenied
	switch {
	case m.accessDenied && !m.validFound:
		a.endSearch()
		a.reportMissingReason(MissingAccessDenied)
	case was && !m.accessDenied && !m.validFound && !a.budget.Spent():
		a.conn.Subscribe(mqtt.AtMostOnce, a.cfg.Topics.CoordinatorToAgent(a.cfg.ID), a.cfg.Topics.Presence(a.cfg.ID),
			a.cfg.Topics.Announcement())
		m.at = a.owner.Now().Add(missingAnnouncementDelay)
	}
}

// noteUntrustedAnnouncement notes an announcement that is signed with another key than the accepted ones. It is ignored
// if a valid one has arrived over this link: anybody may publish on a broker without access rules.
func (a *Agent) noteUntrustedAnnouncement() {
	if !a.announcementSearch.validFound {
		a.announcementSearch.otherKeySeen = true
		a.endSearch()
		a.reportMissingReason(MissingUntrustedKey)
	}
}

// noteValidAnnouncement ends the search.
func (a *Agent) noteValidAnnouncement() {
	a.endSearch()
	a.announcementSearch.validFound, a.announcementSearch.at = true, time.Time{}
	a.reportMissingReason("")
}

// reportMissingReason reports a reason that has changed; an empty one says that an announcement has arrived.
func (a *Agent) reportMissingReason(reason MissingReason) {
	m := &a.announcementSearch
	if reason == m.reason {
		return
	}
	m.reason = reason
	f := AnnouncementMissing{Reason: reason, Federation: a.cfg.Federation}
	if reason == MissingNotRetained || reason == MissingOtherFederation {
		f.OtherFederations = slices.Clone(m.others)
	}
	a.cfg.Observer.Observe(f)
}
