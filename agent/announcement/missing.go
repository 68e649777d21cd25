package announcement

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// Reason is the cause of a missing announcement.
type Reason string

// The reasons.
const (
	// NotRetained: the broker retains no announcement of the federation.
	NotRetained Reason = "no_announcement"
	// UntrustedKey: the announcement is signed with a key that the device does not accept.
	UntrustedKey Reason = "wrong_key"
	// OtherFederation: the coordinator with the configured key announces another federation.
	OtherFederation Reason = "wrong_federation"
	// AccessDenied: the broker's access rules withhold messages from the device.
	AccessDenied Reason = "access"
)

// Missing: no valid announcement has arrived since the agent connected. Reason is empty when one has arrived.
type Missing struct {
	Reason     Reason
	Federation wire.Federation
	// OtherFederations are the other federations whose announcements the broker retains. If the reason is
	// OtherFederation, it contains only the federation that the configured key announces.
	OtherFederations []wire.Federation
}

// Describe implements observe.Event.
func (e Missing) Describe(d *observe.Description) {
	const name = "announcement"
	if e.Reason == "" {
		d.Log(observe.Info, "announcement received")
		d.Resolve(name)
		d.Show(observe.Activity, "")
		return
	}
	d.Show(observe.Activity, fmt.Sprintf("no task: %s", e.Reason))
	switch e.Reason {
	case AccessDenied: // host.BrokerTested says what to change
		d.FailReadiness(name, e.Problem(), e.Remedy())
	case NotRetained: // an agent that waits for its coordinator's first start is ready
		d.Log(observe.Warn, "no announcement", "reason", e.Reason, "other_federations", e.OtherFederations)
		d.Fail(name, e.Problem(), e.Remedy())
	case UntrustedKey, OtherFederation:
		d.Log(observe.Error, "no announcement", "reason", e.Reason, "other_federations", e.OtherFederations)
		d.FailReadiness(name, e.Problem(), e.Remedy())
	}
}

// Problem describes the cause of a missing announcement.
func (e Missing) Problem() string {
	switch e.Reason {
	case UntrustedKey:
		return fmt.Sprintf("the announcement of federation %s is signed with a key that this device does not accept",
			e.Federation)
	case OtherFederation:
		return fmt.Sprintf("the coordinator with the configured key announces federation %s, but agentd.yaml has "+
			"federation: %s", e.others(), e.Federation)
	case AccessDenied:
		return "the broker's access rules withhold messages from this user"
	case NotRetained:
	}
	text := fmt.Sprintf("the broker has no announcement of federation %s", e.Federation)
	if len(e.OtherFederations) > 0 {
		text += "; other federations at this broker: " + e.others()
	}
	return text
}

// others returns the names of the other federations, separated by commas.
func (e Missing) others() string {
	names := make([]string, len(e.OtherFederations))
	for i, o := range e.OtherFederations {
		names[i] = string(o)
	}
	return strings.Join(names, ", ")
}

// Remedy returns the step that resolves the cause.
func (e Missing) Remedy() string {
	switch e.Reason {
	case UntrustedKey:
		return "set identity.coordinator_key to what `coordinator key show coordinator.key` prints; a device that " +
			"joined with a token joins again (`coordinator devices rotate ID`)"
	case OtherFederation:
		return fmt.Sprintf("set federation: %s in agentd.yaml and restart agentd", e.others())
	case AccessDenied:
		return mqtt.LoadAccessRules
	case NotRetained:
	}
	return "start the coordinator; if it runs, compare federation, broker.prefix and broker.url in agentd.yaml and " +
		"coordinator.yaml"
}

const (
	// searchDelay is the time from the connection to the first search for the cause of a missing announcement. The test
	// of the access rules (mqtt.SelfTest) has a result by then, unless the link is busy.
	searchDelay = 25 * time.Second
	// searchTime is for how long the agent receives the announcements of other federations.
	searchTime = 5 * time.Second
	// maxOtherFederations limits the names of other federations in an event.
	maxOtherFederations = 8
)

// search finds out why no valid announcement has arrived over the present link.
type search struct {
	at           time.Time // of the next step; zero = none is planned
	searching    bool      // the agent receives the announcements of other federations
	searched     bool      // it has done so over this link
	validFound   bool      // a valid announcement has arrived over this link
	accessDenied bool      // the access rules withhold messages, by the last test of the broker
	otherKeySeen bool      // an announcement signed with another key has arrived over this link
	reason       Reason
	others       []wire.Federation // sorted
}

// up plans the search for a link that has just come up.
func (s *search) up(now time.Time) {
	*s = search{at: now.Add(searchDelay), accessDenied: s.accessDenied, reason: s.reason, others: s.others}
}

// down ends the search. The reason remains until an announcement arrives.
func (s *search) down() { s.at, s.searching = time.Time{}, false }

// stepSearch takes the next step of the search if it is due.
func (w *Watch) stepSearch(now time.Time) {
	s := &w.search
	if s.at.IsZero() || now.Before(s.at) {
		return
	}
	s.at = time.Time{}
	switch {
	case w.core.UplinkSpent():
	case s.otherKeySeen, s.accessDenied: // known already
	case !s.searched:
		s.searching, s.searched, s.at = true, true, now.Add(searchTime)
		w.core.Conn.Subscribe(mqtt.AtMostOnce, w.core.Topics.AllAnnouncementsFilter())
	default:
		w.endSearch()
		w.reportReason(NotRetained)
	}
}

// receiveForeign records an announcement of another federation during a search.
func (w *Watch) receiveForeign(payload []byte) {
	e, err := wire.ParseEnvelope(payload)
	if err != nil || e.Sender != wire.CoordinatorID || e.Federation == w.core.Federation {
		return
	}
	s := &w.search
	for _, key := range w.coordinatorKeys() {
		if e.VerifyBy(w.core.Signer.Signatures, key) == nil {
			s.others, s.at = []wire.Federation{e.Federation}, time.Time{}
			w.endSearch()
			w.reportReason(OtherFederation)
			return
		}
	}
	if i, known := slices.BinarySearch(s.others, e.Federation); !known && len(s.others) < maxOtherFederations {
		s.others = slices.Insert(s.others, i, e.Federation)
	}
}

func (w *Watch) endSearch() {
	if w.search.searching {
		w.search.searching = false
		w.core.Conn.Unsubscribe(w.core.Topics.AllAnnouncementsFilter())
	}
}

// HandleEvent handles an event of the search. It reports whether the event belongs to the search alone.
func (w *Watch) HandleEvent(e mqtt.Event) bool {
	filter := w.core.Topics.AllAnnouncementsFilter()
	switch e := e.(type) {
	case mqtt.SubscribeRefused:
		if e.Filter == filter {
			w.endSearch() // otherwise the session would ask again, and disconnect in the end
			w.search.at = w.core.Loop.Now()
			return true
		}
	case mqtt.RefusalOver:
		return e.Filter == filter
	case mqtt.Received:
		if w.search.searching && w.core.Topics.IsForeignAnnouncement(e.Topic) {
			w.receiveForeign(e.Payload)
			return true
		}
	}
	return false
}

// HandleAccessTest records the result of the test of the broker. Once the rules let messages through, the agent
// subscribes again, so that the broker delivers what it retains.
func (w *Watch) HandleAccessTest(r mqtt.SelfTestResult) {
	s := &w.search
	was := s.accessDenied
	s.accessDenied = r == mqtt.SelfTestDenied
	switch topics := w.core.Topics; {
	case s.accessDenied && !s.validFound:
		w.endSearch()
		w.reportReason(AccessDenied)
	case was && !s.accessDenied && !s.validFound && !w.core.UplinkSpent():
		w.core.Conn.Subscribe(mqtt.AtMostOnce, topics.CoordinatorToAgent(w.core.ID), topics.Presence(w.core.ID),
			topics.Announcement())
		s.at = w.core.Loop.Now().Add(searchDelay)
	}
}

// ReportUntrusted reports an announcement that is signed with a key that is not in force. It is ignored if a
// valid one has arrived over this link: any client may publish on a broker without access rules.
func (w *Watch) ReportUntrusted() {
	if !w.search.validFound {
		w.search.otherKeySeen = true
		w.endSearch()
		w.reportReason(UntrustedKey)
	}
}

// reportReason reports a reason that has changed. It is empty once an announcement has arrived.
func (w *Watch) reportReason(reason Reason) {
	s := &w.search
	if reason == s.reason {
		return
	}
	s.reason = reason
	e := Missing{Reason: reason, Federation: w.core.Federation}
	if reason == NotRetained || reason == OtherFederation {
		e.OtherFederations = slices.Clone(s.others)
	}
	w.core.Observer.Observe(e)
}
