package agent

import (
	"slices"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// rejectionState is whether the coordinator ignores this agent's messages. It does not change what the agent does.
type rejectionState struct {
	sentDigests [4]wire.Digest       // the newest hellos, presences and reports that were not rejected; a ring
	unanswered  [4]bool              // of sentDigests: the coordinator has not answered since
	next        int                  // index in sentDigests of the oldest message
	reason      wire.RejectionReason // of the newest rejection; 0 = messages are accepted
}

// publishExpectingAnswer publishes a hello, a presence or a report, which the coordinator may answer.
func (a *Agent) publishExpectingAnswer(m mqtt.Message) {
	u := &a.rejection
	if e, err := wire.ParseEnvelope(m.Payload); err == nil {
		u.sentDigests[u.next], u.unanswered[u.next] = e.Digest(), true
		u.next = (u.next + 1) % len(u.sentDigests)
	}
	a.publish(m)
}

// takeRejection reports the reason of a rejection. Each message is rejected once at most, and only while it is
// unanswered, because anybody may replay an old rejection. Exception: an agent that leaves the list is told so with its
// last message, which may have been answered.
func (a *Agent) takeRejection(m wire.Rejection) error {
	u := &a.rejection
	i := slices.Index(u.sentDigests[:], m.MessageDigest)
	if m.MessageDigest.IsZero() || i < 0 || !u.unanswered[i] && m.Reason != wire.RejectedUnlisted {
		return host.NewDropError(DropUnwanted, "an answer (%s) to a message that this agent does not wait for",
			m.Reason)
	}
	u.sentDigests[i] = wire.Digest{}
	a.reportRejection(m.Reason)
	if m.Reason == wire.RejectedKey {
		a.askForNextKey() // the list may have the next one
	}
	return nil
}

// noteAcceptance notes an answer that shows that the coordinator accepts the agent's messages. If two devices use the
// agent's identity, the answer may be for the other one: a rejection as a clone stays.
func (a *Agent) noteAcceptance() {
	a.evaluationAcknowledged()
	a.rejection.unanswered = [4]bool{}
	if a.rejection.reason != wire.RejectedClone {
		a.reportRejection(0)
	}
}

func (a *Agent) reportRejection(reason wire.RejectionReason) {
	if reason != a.rejection.reason {
		a.rejection.reason = reason
		a.cfg.Observer.Observe(MessagesRejected{reason})
	}
}
