package agent

import (
	"fmt"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// receiveMessage dispatches an incoming message by its topic. Each message is either processed or reported as a
// MessageDropped event.
func (a *Agent) receiveMessage(m mqtt.Message) {
	kind, agent, id, name, err := a.cfg.Topics.ParseTopic(m.Topic)
	switch {
	case kind == mqtt.KindPeer, kind == mqtt.KindBeacon:
		a.mesh.RouteMessage(m)
	case err != nil, agent != "" && agent != a.cfg.ID:
		err = host.NewMessageDropError(part.DropMisaddressed, "unexpected topic %q", m.Topic)
	case kind == mqtt.KindBlob:
		err = a.fetch.ReceiveBlobPart(id, name, m)
	case len(m.Payload) == 0 && (m.Retained || kind == mqtt.KindAnnouncement || kind == mqtt.KindPresence):
		return // An empty payload means that a retained message was deleted.
	case kind == mqtt.KindAnnouncement:
		err = a.receiveAnnouncement(m)
	case kind == mqtt.KindRoot:
		err = a.identity.ReceiveRootDocument(name, m.Payload)
	case kind == mqtt.KindPresence:
		err = a.presence.ReceivePresence(m.Payload)
	case kind == mqtt.KindCoordinatorToAgent:
		err = a.receiveDirectMessage(m.Payload)
	default:
		err = host.NewMessageDropError(part.DropMisaddressed, "unexpected topic %q", m.Topic)
	}
	if err != nil {
		a.reportDroppedMessage(kind, err)
	}
}

func (a *Agent) reportDroppedMessage(kind mqtt.TopicKind, err error) {
	reason, err := host.DropReasonOf(err, part.DropMalformed, part.DropVersion)
	a.cfg.Observer.Observe(MessageDropped{Kind: kind, Reason: reason, Err: err})
}

func (a *Agent) receiveAnnouncement(m mqtt.Message) error {
	e, selection, err := a.identity.VerifyCoordinatorEnvelope(m.Payload)
	if err != nil {
		if reason, _ := host.DropReasonOf(err, part.DropMalformed, part.DropVersion); reason == part.DropSignature {
			a.announcements.ReportUntrustedAnnouncement()
		}
		return err
	}
	if e.Type != wire.TypeAnnouncement {
		return host.NewMessageDropError(part.DropUnwanted, "unexpected %s message on the announcement topic", e.Type)
	}
	ann, err := wire.DecodeAnnouncement(e.Body)
	if err != nil {
		return err
	}
	order := wire.AnnouncementPositionOf(e.Header, &ann)
	if err = a.core.Sealer.AdoptAnnouncedKey(order, ann.SealPublicKey); err != nil {
		return err
	}
	weight, _ := ann.Selection.FindAgentWeight(selection, order, ann.InstanceNonce)
	a.core.LastAnnouncement = agentround.AnnouncementReceived{Position: order, EnvelopeDigest: e.Digest(),
		Announcement: ann,
		IsRetained:   m.Retained,
		StepWeight:   weight}
	for p := range part.PartsImplementing[part.AnnouncementReceiver](a.parts) {
		p.ReceiveAnnouncement(a.core.LastAnnouncement)
	}
	a.handleRoundEvent(a.core.LastAnnouncement)
	a.requestHelloForUpdateFate()
	if a.roundMachine.SendsNoHello() {
		a.announcements.RequestAnnouncementPeriodically()
	}
	return nil
}

func (a *Agent) receiveDirectMessage(p []byte) error {
	e, _, err := a.identity.VerifyCoordinatorEnvelope(p)
	if err != nil {
		return err
	}
	if a.core.ObeyedPosition.SupersedesSenderOf(e.Header) {
		return host.NewMessageDropError(part.DropOlderEpoch,
			"%s message has root version %d and epoch %d, but the agent has already accepted root version %d and "+
				"epoch %d: an older coordinator is still running, or its messages are being replayed",
			e.Type, e.Root, e.Epoch,
			a.core.ObeyedPosition.Root,
			a.core.ObeyedPosition.Epoch)
	}
	switch {
	case e.Type == wire.TypeSealed:
		if e, err = a.core.Sealer.OpenMessage(e); err != nil {
			return err
		}
	case e.Type.MustBeSealed():
		return host.NewMessageDropError(part.DropUnsealFailed, "received an unencrypted %s message: the coordinator "+
			"must encrypt messages of this type",
			e.Type)
	}
	switch e.Type {
	case wire.TypeInvitation:
		return a.receiveInvitation(&e)
	case wire.TypeHelloAnswer:
		return a.receiveHelloAnswer(&e)
	}
	for p := range part.PartsImplementing[part.DirectMessageReceiver](a.parts) {
		if slices.Contains(p.DirectMessageTypes(), e.Type) {
			return p.ReceiveDirectMessage(&e)
		}
	}
	return host.NewMessageDropError(part.DropUnwanted, "unexpected %s message from the coordinator", e.Type)
}

// requestHelloForUpdateFate sends an extra hello message to find out whether the coordinator accepted an update. It
// does this only if the agent would otherwise send no hello message or disconnect.
func (a *Agent) requestHelloForUpdateFate() {
	if a.upload.AwaitsUpdateFate() && (a.roundMachine.SendsNoHello() || a.roundMachine.MayDisconnect()) {
		a.handleRoundEvent(agentround.UpdateFateUnknown{})
	}
}

// recordAcceptanceByCoordinator records that the coordinator has answered. An answer shows that the coordinator accepts
// the agent's messages.
func (a *Agent) recordAcceptanceByCoordinator() {
	a.evaluation.RecordHelloAnswered()
	a.presence.RecordAcceptanceByCoordinator()
}

func (a *Agent) receiveInvitation(e *wire.Envelope) error {
	m, err := wire.DecodeInvitation(e.Body)
	if err != nil {
		return err
	}
	a.announcements.RequestLostAnnouncement(m.Announcement)
	if m.Agent != a.cfg.ID {
		return host.NewMessageDropError(part.DropMisaddressed, "received an invitation for a different agent, %s",
			m.Agent)
	}
	a.recordAcceptanceByCoordinator()
	a.mesh.AdoptAttestation(m.KeyAttestation)
	a.upload.PassInvitationToSender(e.Header)
	a.handleRoundEvent(agentround.InvitationReceived{AnnouncementDigest: m.Announcement,
		TimeLeft:   time.Duration(m.RemainingMillis) * time.Millisecond,
		StepWeight: m.StepSizeWeight, MustUpload: m.MustSendUpdate, MixingBlockRound: m.MixingBlockRound,
		MixingPeers: m.Peers,
		EndedEdges:  m.EndedEdges, KnownRowCount: m.ReportedRows, UnsupportedErr: m.Extra.CheckSupported()})
	return nil
}

func (a *Agent) receiveHelloAnswer(e *wire.Envelope) error {
	m, err := wire.DecodeHelloAnswer(e.Body)
	if err != nil {
		return err
	}
	a.announcements.RequestLostAnnouncement(m.Announcement)
	a.recordAcceptanceByCoordinator()
	a.handleRoundEvent(agentround.RoundStandingReceived{AnnouncementDigest: m.Announcement, Standing: m.SelectionStatus,
		KnownRowCount: m.ReportedRows})
	a.requestHelloForUpdateFate() // The outcome of the update arrives before this answer.
	return nil
}

// DroppedMessages counts the messages that the agent has dropped.
var DroppedMessages = host.NewDroppedMessagesMetric(observe.NamesAsStrings(part.DropReasons()))

// MessageDropped is emitted when an incoming message was dropped.
type MessageDropped struct {
	Kind   mqtt.TopicKind
	Reason part.DropReason
	Err    error
}

// Describe implements observe.Event. The condition ends when the agent can decode an announcement.
func (e MessageDropped) Describe(d *observe.EventDescription) {
	d.IncCounter(DroppedMessages, host.DirectionReceived, string(e.Reason))
	d.Log(observe.Warn, "message dropped", "kind", e.Kind, "reason", e.Reason, "err", e.Err)
	if e.Kind == mqtt.KindAnnouncement && e.Reason == part.DropVersion {
		d.RaiseCondition(agentround.AnnouncementVersionCondition,
			fmt.Sprintf("the coordinator's announcements cannot be read: %v",
				e.Err), "update the older of the two programs, agentd or coordinator")
	}
}
