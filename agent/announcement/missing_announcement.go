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

// MissingReason is the reason why no valid announcement has arrived.
type MissingReason string

// Reasons for a missing announcement.
const (
	// NotRetained means that the broker retains no announcement of the federation.
	NotRetained MissingReason = "no_announcement"
	// UntrustedKey means that the announcement is signed with a key that the device does not accept.
	UntrustedKey MissingReason = "wrong_key"
	// OtherFederation means that the coordinator with the configured key announces another federation.
	OtherFederation MissingReason = "wrong_federation"
	// AccessDenied means that the broker's access rules withhold messages from the device.
	AccessDenied MissingReason = "access"
)

// AnnouncementMissingValue is the name of the status value AnnouncementMissing.
const AnnouncementMissingValue = "missing announcement"

// AnnouncementMissing reports that no valid announcement has arrived since the agent connected. Reason is empty after
// an announcement has arrived.
type AnnouncementMissing struct {
	Reason     MissingReason
	Federation wire.FederationName
	// OtherFederations lists other federations with a retained announcement. If Reason is OtherFederation, it names
	// only the federation that the configured coordinator key announces.
	OtherFederations []wire.FederationName
}

// Describe implements observe.Event.
func (e AnnouncementMissing) Describe(d *observe.EventDescription) {
	const name = "announcement"
	d.ShowStatusValue(AnnouncementMissingValue, e)
	if e.Reason == "" {
		d.Log(observe.Info, "announcement received")
		d.ResolveCondition(name)
		d.ShowStatusValue(observe.ActivityStatus, "")
		return
	}
	d.ShowStatusValue(observe.ActivityStatus, fmt.Sprintf("no task: %s", e.Reason))
	switch e.Reason {
	case AccessDenied: // The event BrokerSelfTestEnded already reports the remedy.
		d.RaiseNotReadyCondition(name, e.Problem(), e.Remedy())
	case NotRetained: // It is not a fault if the coordinator has not been started yet.
		d.Log(observe.Warn, "no valid announcement received", "reason", e.Reason, "other_federations",
			e.OtherFederations)
		d.RaiseCondition(name, e.Problem(), e.Remedy())
	case UntrustedKey, OtherFederation:
		d.Log(observe.Error, "no valid announcement received", "reason", e.Reason, "other_federations",
			e.OtherFederations)
		d.RaiseNotReadyCondition(name, e.Problem(), e.Remedy())
	}
}

// Problem returns a description of why the announcement is missing, for the operator.
func (e AnnouncementMissing) Problem() string {
	switch e.Reason {
	case UntrustedKey:
		return fmt.Sprintf("the announcement of federation %s is signed with a key that this device does not accept",
			e.Federation)
	case OtherFederation:
		return fmt.Sprintf("the coordinator with the configured key announces federation %s, but agentd.yaml has "+
			"federation: %s", e.joinOtherFederations(), e.Federation)
	case AccessDenied:
		return "the broker's access rules block messages to this user"
	case NotRetained:
	}
	text := fmt.Sprintf("the broker has no announcement of federation %s", e.Federation)
	if len(e.OtherFederations) > 0 {
		text += "; other federations at this broker: " + e.joinOtherFederations()
	}
	return text
}

// joinOtherFederations returns the names of the other federations, separated by commas.
func (e AnnouncementMissing) joinOtherFederations() string {
	names := make([]string, len(e.OtherFederations))
	for i, o := range e.OtherFederations {
		names[i] = string(o)
	}
	return strings.Join(names, ", ")
}

// Remedy returns the action that the operator should take to receive announcements.
func (e AnnouncementMissing) Remedy() string {
	switch e.Reason {
	case UntrustedKey:
		return "set identity.coordinator_key to the output of `coordinator key show coordinator.key`; if the device " +
			"joined with a token, let it join again with `coordinator devices rotate ID`"
	case OtherFederation:
		return fmt.Sprintf("set federation: %s in agentd.yaml and restart agentd", e.joinOtherFederations())
	case AccessDenied:
		return mqtt.AccessRulesRemedy
	case NotRetained:
	}
	return "start the coordinator; if it is running, compare federation, broker.prefix and broker.url in agentd.yaml " +
		"and " +
		"coordinator.yaml"
}

const (
	// searchDelay is the time from connecting to the search for the cause of a missing announcement. By then the broker
	// self-test has usually ended.
	searchDelay = 25 * time.Second
	// searchTime is the time during which the agent receives the announcements of other federations.
	searchTime = 5 * time.Second
	// maxOtherFederations is the maximum number of other federations that an event lists.
	maxOtherFederations = 8
)

// missingCauseSearch finds the reason why no valid announcement has arrived over the current connection.
type missingCauseSearch struct {
	nextStepAt                time.Time // time of the next step; zero if none is planned
	isHearingOtherFederations bool      // true while subscribed to other federations' announcements
	hasHeardOtherFederations  bool      // true after the search has subscribed over this connection
	hasValidAnnouncement      bool      // whether a valid announcement has arrived over this connection
	isAccessDenied            bool      // whether the last broker test found that access rules withhold messages
	// whether an announcement signed with another key has arrived over this connection
	hasSeenUntrustedKey bool
	reason              MissingReason
	otherFederations    []wire.FederationName // names of the other federations, sorted
}

// planForNewLink schedules a search for the cause after the broker connection was established.
func (s *missingCauseSearch) planForNewLink(now time.Time) {
	*s = missingCauseSearch{nextStepAt: now.Add(searchDelay), isAccessDenied: s.isAccessDenied, reason: s.reason,
		otherFederations: s.otherFederations}
}

// stopOnLinkLoss stops the search when the connection is lost. It keeps the reason until an announcement arrives.
func (s *missingCauseSearch) stopOnLinkLoss() {
	s.nextStepAt, s.isHearingOtherFederations = time.Time{}, false
}

// takeNextSearchStep performs the next step of the search if it is due.
func (w *AnnouncementWatch) takeNextSearchStep(now time.Time) {
	s := &w.search
	if s.nextStepAt.IsZero() || now.Before(s.nextStepAt) {
		return
	}
	s.nextStepAt = time.Time{}
	switch {
	case w.core.IsUplinkBudgetSpent():
	case s.hasSeenUntrustedKey, s.isAccessDenied: // The cause is already known.
	case !s.hasHeardOtherFederations:
		s.isHearingOtherFederations, s.hasHeardOtherFederations, s.nextStepAt = true, true, now.Add(searchTime)
		w.core.Conn.Subscribe(mqtt.AtMostOnce, w.core.Topics.AllAnnouncementsFilter())
	default:
		w.unsubscribeOtherFederations()
		w.reportMissingReason(NotRetained)
	}
}

// receiveForeignAnnouncement records an announcement of another federation during a search.
func (w *AnnouncementWatch) receiveForeignAnnouncement(payload []byte) {
	e, err := wire.ParseEnvelope(payload)
	if err != nil || e.Sender != wire.CoordinatorID || e.Federation == w.core.Federation {
		return
	}
	s := &w.search
	for _, key := range w.listCoordinatorKeys() {
		if e.VerifyWithScheme(w.core.Signer.SignatureScheme, key) == nil {
			s.otherFederations, s.nextStepAt = []wire.FederationName{e.Federation}, time.Time{}
			w.unsubscribeOtherFederations()
			w.reportMissingReason(OtherFederation)
			return
		}
	}
	if i, known := slices.BinarySearch(s.otherFederations,
		e.Federation); !known && len(s.otherFederations) < maxOtherFederations {
		s.otherFederations = slices.Insert(s.otherFederations, i, e.Federation)
	}
}

func (w *AnnouncementWatch) unsubscribeOtherFederations() {
	if w.search.isHearingOtherFederations {
		w.search.isHearingOtherFederations = false
		w.core.Conn.Unsubscribe(w.core.Topics.AllAnnouncementsFilter())
	}
}

// HandleSearchEvent handles a broker event during the search for a missing announcement. It returns true if no other
// part needs the event.
func (w *AnnouncementWatch) HandleSearchEvent(e mqtt.Event) bool {
	filter := w.core.Topics.AllAnnouncementsFilter()
	switch e := e.(type) {
	case mqtt.SubscriptionRefused:
		if e.Filter == filter {
			w.unsubscribeOtherFederations() // Otherwise the session would retry the subscription and then disconnect.
			w.search.nextStepAt = w.core.Loop.Now()
			return true
		}
	case mqtt.SubscriptionRefusalEnded:
		return e.Filter == filter
	case mqtt.MessageReceived:
		if w.search.isHearingOtherFederations && w.core.Topics.IsForeignAnnouncement(e.Topic) {
			w.receiveForeignAnnouncement(e.Payload)
			return true
		}
	}
	return false
}

// HandleAccessTestResult records the result of a broker test. When the access rules no longer withhold messages, it
// renews the subscription, so that the broker sends its retained messages.
func (w *AnnouncementWatch) HandleAccessTestResult(r mqtt.SelfTestResult) {
	s := &w.search
	was := s.isAccessDenied
	s.isAccessDenied = r == mqtt.SelfTestDenied
	switch topics := w.core.Topics; {
	case s.isAccessDenied && !s.hasValidAnnouncement:
		w.unsubscribeOtherFederations()
		w.reportMissingReason(AccessDenied)
	case was && !s.isAccessDenied && !s.hasValidAnnouncement && !w.core.IsUplinkBudgetSpent():
		w.core.Conn.Subscribe(mqtt.AtMostOnce, topics.CoordinatorToAgent(w.core.ID), topics.Presence(w.core.ID),
			topics.Announcement())
		s.nextStepAt = w.core.Loop.Now().Add(searchDelay)
	}
}

// ReportUntrustedAnnouncement reports an announcement signed with a key that the device does not accept. It does
// nothing if a valid announcement has arrived over this connection, because without access rules any client may publish
// announcements.
func (w *AnnouncementWatch) ReportUntrustedAnnouncement() {
	if !w.search.hasValidAnnouncement {
		w.search.hasSeenUntrustedKey = true
		w.unsubscribeOtherFederations()
		w.reportMissingReason(UntrustedKey)
	}
}

// reportMissingReason reports why the announcement is missing if the reason has changed. An empty reason means that an
// announcement has arrived.
func (w *AnnouncementWatch) reportMissingReason(reason MissingReason) {
	s := &w.search
	if reason == s.reason {
		return
	}
	s.reason = reason
	e := AnnouncementMissing{Reason: reason, Federation: w.core.Federation}
	if reason == NotRetained || reason == OtherFederation {
		e.OtherFederations = slices.Clone(s.otherFederations)
	}
	w.core.Observer.Observe(e)
}
