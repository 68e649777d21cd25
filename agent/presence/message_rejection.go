package presence

import (
	"slices"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// rejectionState records whether the coordinator ignores the agent's messages.
type rejectionState struct {
	sentDigests [4]wire.Digest              // digests of recent messages that were not rejected (ring buffer)
	unanswered  [4]bool                     // true for each message in sentDigests that has no answer yet
	nextIndex   int                         // index of the oldest entry in sentDigests
	reason      wire.MessageRejectionReason // reason of the newest rejection; 0 means that messages are accepted
}

// PublishAwaitingAnswer publishes a hello message, a presence message or a metrics report and remembers its digest,
// because the coordinator may reject it.
func (p *AgentPresence) PublishAwaitingAnswer(m mqtt.Message) {
	r := &p.rejection
	if e, err := wire.ParseEnvelope(m.Payload); err == nil {
		r.sentDigests[r.nextIndex], r.unanswered[r.nextIndex] = e.Digest(), true
		r.nextIndex = (r.nextIndex + 1) % len(r.sentDigests)
	}
	p.core.Publish(m)
}

// DirectMessageTypes implements part.DirectMessageReceiver.
func (*AgentPresence) DirectMessageTypes() []wire.MessageType {
	return []wire.MessageType{wire.TypeMessageRejection}
}

// ReceiveDirectMessage implements part.DirectMessageReceiver and reports a rejection. To prevent replays, it accepts at
// most one rejection of a message, and only while the message is unanswered. A rejection because the coordinator has
// removed the agent from its list is always accepted.
func (p *AgentPresence) ReceiveDirectMessage(e *wire.Envelope) error {
	m, err := wire.DecodeMessageRejection(e.Body)
	if err != nil {
		return err
	}
	r := &p.rejection
	i := slices.Index(r.sentDigests[:], m.MessageDigest)
	if m.MessageDigest.IsZero() || i < 0 || !r.unanswered[i] && m.Reason != wire.RejectedUnlistedAgent {
		return host.NewMessageDropError(part.DropUnwanted,
			"received a rejection (%s) of an unknown message",
			m.Reason)
	}
	r.sentDigests[i] = wire.Digest{}
	p.reportRejection(m.Reason)
	if m.Reason == wire.RejectedOtherKey {
		p.callbacks.OnKeyRejected()
	}
	return nil
}

// RecordAcceptanceByCoordinator records that the coordinator accepts the agent's messages. A rejection for a clone
// persists, because the accepted message may come from the other device.
func (p *AgentPresence) RecordAcceptanceByCoordinator() {
	p.rejection.unanswered = [4]bool{}
	if p.rejection.reason != wire.RejectedClone {
		p.reportRejection(0)
	}
}

func (p *AgentPresence) reportRejection(reason wire.MessageRejectionReason) {
	if reason != p.rejection.reason {
		p.rejection.reason = reason
		p.core.Observer.Observe(MessagesRejected{reason})
	}
}

var rejections = observe.GaugeByLabel("rejected",
	"1 for the reason for which the coordinator ignores this device's messages, 0 for all others.",
	"reason", observe.StringerNames(wire.MessageRejectionReasons()))

// MessagesRejectedValue is the name of the status value with type MessagesRejected.
const MessagesRejectedValue = "rejected messages"

// MessagesRejected reports why the coordinator ignores this agent's messages; Reason is 0 after the coordinator has
// accepted messages again. A rejection as a clone lasts until the next start.
type MessagesRejected struct{ Reason wire.MessageRejectionReason }

// Describe implements observe.Event.
func (e MessagesRejected) Describe(d *observe.EventDescription) {
	const condition = "rejected messages"
	d.SelectGaugeState(rejections, e.Reason.String())
	d.ShowStatusValue(MessagesRejectedValue, e)
	if e.Reason == 0 {
		d.Log(observe.Info, "coordinator accepts this device's messages again")
		d.ResolveCondition(condition)
		return
	}
	problem, remedy := e.ProblemAndRemedy()
	d.Log(observe.Error, "coordinator ignores this device's messages", "reason", e.Reason)
	d.RaiseCondition(condition, problem, remedy)
}

// ProblemAndRemedy returns the reason why the coordinator ignores messages, and the remedy. Both texts are empty if the
// coordinator accepts messages.
func (e MessagesRejected) ProblemAndRemedy() (problem, remedy string) {
	const ignored = "the coordinator ignores this device's messages: "
	switch e.Reason {
	case 0:
		return "", ""
	case wire.RejectedUnlistedAgent:
		return ignored + "the device's id is not in the list of agents, or the device was revoked",
			"in a federation with tokens, run `coordinator enrol --device ID` and `agentd join`; otherwise add the " +
				"device's id and public key (`agentd key show`) to the coordinator's identity.agents_file and reload " +
				"the file"
	case wire.RejectedOtherKey:
		return ignored + "the list of agents contains a different key for the device's id",
			"enter the device's public key (`agentd key show`) in the coordinator's identity.agents_file, and reload " +
				"the file"
	case wire.RejectedOldEpoch:
		return ignored + "the device's start counter is too low, for example because the state folder was lost",
			"run `coordinator devices reset ID` at the coordinator"
	case wire.RejectedClone:
		return ignored + "another device uses the same identity",
			"give one of the devices its own id and key (`agentd key new`), and restart it"
	}
	return ignored + e.Reason.String(), "update agentd on this device: this version does not know the reason"
}
