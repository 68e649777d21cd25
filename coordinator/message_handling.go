package coordinator

import (
	"errors"

	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/coordinator/duplicate"
	"github.com/fedmesh/fedmesh/coordinator/sealing"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// handleMessage handles a received message. It passes the message to the responsible component or reports it as
// MessageDropped.
func (c *Coordinator) handleMessage(m mqtt.Message) {
	kind, agent, transferID, part, err := c.cfg.Topics.ParseTopic(m.Topic)
	switch {
	case kind == mqtt.KindAnnouncement:
		var f duplicate.GuardFinding
		f, err = c.duplicateGuard.ReceiveAnnouncement(c.ownerLoop.Now(), m)
		c.actOnGuardFinding(f)
	case c.duplicateGuard.AwaitsRetainedAnnouncement():
		if !c.duplicateGuard.HoldMessage(m) {
			err = host.NewMessageDropError(devices.DropOverflow,
				"message dropped: more than %d bytes of messages were received before the retained announcement",
				duplicate.MaxHeldBytes)
		}
	case c.retainedCleanup.HandleMessage(c.ownerLoop.Now(), m, kind, agent, transferID):
		return
	case len(m.Payload) == 0 && kind != mqtt.KindBlob:
		return // an empty payload deletes a retained message
	case err != nil:
		err = host.NewMessageDropError(devices.DropForeign, "unexpected topic %q", m.Topic)
	case kind == mqtt.KindUpdate && part != transfer.ManifestPartName:
		c.signatureCheckPool.RunInOrder(nil, func() {
			c.uploads.ReceiveChunk(transfer.ChunkReceived{Agent: agent, UploadID: transferID, Payload: m.Payload})
		})
	case kind == mqtt.KindBlob:
		c.publisher.ReceiveBlobPart(c.ownerLoop.Now(), m, transferID, part)
	case kind == mqtt.KindUpdate, kind == mqtt.KindPresence, kind == mqtt.KindAgentToCoordinator:
		err = c.verifyAndHandleMessage(kind, agent, m)
	default:
		err = host.NewMessageDropError(devices.DropForeign, "unexpected topic %q", m.Topic)
	}
	c.reportDroppedMessage(kind, agent, err)
}

// reportDroppedMessage reports a message that was dropped because of err. It does nothing if err is nil.
func (c *Coordinator) reportDroppedMessage(kind mqtt.TopicKind, agent wire.AgentID, err error) {
	if err == nil || errors.Is(err, devices.ErrKnown) {
		return
	}
	reason, err := host.DropReasonOf(err, devices.DropMalformed, devices.DropVersion)
	c.cfg.Observer.Observe(MessageDropped{Kind: kind, Agent: agent, Reason: reason, Err: err})
}

// verifyAndHandleMessage verifies the signature of an agent's message on a worker goroutine and then handles the
// message.
func (c *Coordinator) verifyAndHandleMessage(kind mqtt.TopicKind, agent wire.AgentID, m mqtt.Message) error {
	e, err := wire.ParseEnvelope(m.Payload)
	var other *wire.ProtocolVersionError
	switch {
	case errors.As(err, &other):
		if c.messageChecker.AgentKey(agent) == nil { // signatures of other protocol versions cannot be verified
			return host.NewMessageDropError(devices.DropUnknown, "%s is not in the list of agents: %w", agent,
				other)
		}
		return host.NewMessageDropError(devices.DropVersion, "%w: update the %s", other,
			other.UpgradeAdvice("coordinator", "agent"))
	case err != nil:
		return err
	case e.Federation != c.cfg.Federation || e.Sender != agent:
		return host.NewMessageDropError(devices.DropForeign,
			"unexpected %s: sent by %s in federation %s, but received on the topic of %s", e.Type,
			e.Sender,
			e.Federation,
			agent)
	}
	list, key, signatures := c.messageChecker.AgentList(), c.messageChecker.AgentKey(agent), c.cfg.Signatures
	if key == nil {
		c.messageChecker.RejectMessage(agent, &e, m, wire.RejectedUnlistedAgent)
		return host.NewMessageDropError(devices.DropUnknown, "%s is not in the list of agents", agent)
	}
	if kind == mqtt.KindAgentToCoordinator && e.Type == wire.TypeRenewalRequest {
		return c.checkRenewalSignatures(agent, e)
	}
	open, keep := c.keyring.NewMessageOpener(agent, e)
	var u sealing.OpenedMessage
	c.signatureCheckPool.RunInOrder(func() {
		if err = e.VerifyWithScheme(signatures, key); err == nil {
			if u, err = open(); err != nil {
				err = host.NewMessageDropError(devices.DropSealed, "%w", err)
			}
		}
	}, func() {
		switch keep(); {
		case c.duplicateGuard.AwaitsRetainedAnnouncement(): // the connection was lost while the signature was verified
			c.handleMessage(m)
		case list != c.messageChecker.AgentList() && !key.Equal(c.messageChecker.AgentKey(agent)):
			c.reportDroppedMessage(kind, agent, host.NewMessageDropError(devices.DropUnknown,
				"%s is no longer in the list of agents",
				agent))
		case errors.Is(err, wire.ErrSignature):
			c.messageChecker.RejectMessage(agent, &e, m, wire.RejectedOtherKey)
			c.reportDroppedMessage(kind, agent,
				host.NewMessageDropError(devices.DropSignature, "%w: the agent's key may differ from its key in the "+
					"list of agents",
					err))
		case err != nil:
			// The agent uses an outdated key, because it has missed the current announcement. It could not decrypt an
			// answer, so the announcement is repeated.
			c.duplicateGuard.RepeatAnnouncementIfStale(c.ownerLoop.Now())
			c.reportDroppedMessage(kind, agent, err)
		default:
			c.reportDroppedMessage(kind, agent, c.handleUnsealedEnvelope(kind, agent, u, m))
		}
	})
	return nil
}

func (c *Coordinator) handleUnsealedEnvelope(kind mqtt.TopicKind, agent wire.AgentID, e sealing.OpenedMessage,
	sealed mqtt.Message) error {
	if err := c.messageChecker.AcceptMessage(agent, &e.Envelope, sealed); err != nil {
		return err
	}
	heard := MessageAccepted{Agent: agent, RootVersion: e.Root, Retained: sealed.Retained}
	if kind != mqtt.KindPresence {
		c.cfg.Observer.Observe(heard)
	}
	switch {
	case kind == mqtt.KindPresence && e.Type == wire.TypePresence:
		m, err := wire.DecodePresence(e.Body)
		if err != nil {
			return err
		}
		heard.Presence = &m
		c.cfg.Observer.Observe(heard)
		c.stepMachine(round.PresenceReceived{Agent: agent, State: m.State})
	case kind == mqtt.KindAgentToCoordinator && e.Type == wire.TypeHello:
		return c.handleHello(kind, agent, e)
	case kind == mqtt.KindAgentToCoordinator && e.Type == wire.TypeInvitationAccepted:
		m, err := wire.DecodeInvitationAccepted(e.Body)
		if err != nil {
			return err
		}
		if m.Announcement == c.publisher.AnnouncementDigest() {
			c.stepMachine(round.JoinedReceived{Agent: agent, Round: e.Round})
		}
	case kind == mqtt.KindAgentToCoordinator && e.Type == wire.TypeInvitationDeclined:
		m, err := wire.DecodeInvitationDeclined(e.Body)
		if err != nil {
			return err
		}
		if m.Announcement == c.publisher.AnnouncementDigest() {
			c.stepMachine(round.DeclinedReceived{Agent: agent, Round: e.Round, Reason: m.Reason})
			if m.Reason == wire.DeclineFetchFailed {
				c.publisher.RecheckBlobs(c.ownerLoop.Now())
			}
		}
	case kind == mqtt.KindAgentToCoordinator && e.Type == wire.TypeMetricsReport:
		m, err := wire.DecodeAgentMetricsReport(e.Body)
		if err != nil {
			return err
		}
		c.cfg.Observer.Observe(AgentReportReceived{agent, e.Epoch, m})
	case kind == mqtt.KindUpdate && e.Type == wire.TypeUpdate:
		m, err := wire.DecodeUpdate(e.Body)
		if err != nil {
			return err
		}
		if c.duplicateGuard.IsFromLaterPosition(e.Header) {
			return host.NewMessageDropError(devices.DropLater,
				"ignored an update for run %d, round %d, which is later than this coordinator's run %d, "+
					"round %d", e.Run, e.Round, c.runID, c.currentRound())
		}
		c.stepMachine(round.UpdateOfferReceived{UpdateOffer: round.UpdateOffer{Agent: agent, Boot: e.Epoch, Run: e.Run,
			Round:          e.Round,
			Update:         m,
			SignedManifest: e.Bytes(), BlobSealer: e.SealKey.BlobSealer(m.PayloadManifest.Hash)}})
	default:
		return host.NewMessageDropError(devices.DropForeign, "unexpected message type %s on this topic", e.Type)
	}
	return nil
}

// handleHello handles a hello, unless its agent follows a later announcement than the coordinator's own, or an
// announcement that is too old.
func (c *Coordinator) handleHello(kind mqtt.TopicKind, agent wire.AgentID, e sealing.OpenedMessage) error {
	m, err := wire.DecodeHello(e.Body)
	if err != nil {
		return err
	}
	if c.duplicateGuard.CheckHelloPosition(agent, e.Header) {
		c.sendPresentAnnouncementDigest(agent)
		return nil
	}
	now := c.ownerLoop.Now()
	if m.FollowedAnnouncement != c.publisher.AnnouncementDigest() {
		c.duplicateGuard.RepeatAnnouncementIfStale(now)
	}
	if !c.publisher.IsRecentAnnouncement(m.FollowedAnnouncement, now) {
		// The agent may have missed the current announcement. A replayed hello has no other effect.
		c.sendPresentAnnouncementDigest(agent)
		return host.NewMessageDropError(devices.DropOutdated,
			"received a hello in reply to the outdated announcement of round %d", e.Round)
	}
	c.reportDroppedMessage(kind, agent, c.stripMismatchedEvaluation(agent, &m))
	c.publisher.ResendParts(now, m.MissingParts)
	asksForKey, saysMore := c.keyring.HandleHello(agent, &m, m.FollowedAnnouncement == c.publisher.AnnouncementDigest())
	if asksForKey {
		c.sendGroupKey(agent)
	}
	if !saysMore {
		return nil
	}
	// A working agent that sends a hello may be unable to fetch the model, unless it has restarted.
	stranded := m.MissingGroupKeyID == 0 && (m.UnfitReason == wire.DeclineFetchFailed ||
		c.roundMachine.IsAgentWorking(agent) &&
			c.messageChecker.NewestBootEpoch(agent, wire.TypeInvitationAccepted) == e.Epoch)
	c.stepMachine(round.HelloReceived{Agent: agent, Boot: e.Epoch, Hello: m})
	if stranded {
		c.publisher.RecheckBlobs(c.ownerLoop.Now())
	}
	return nil
}

// sendPresentAnnouncementDigest sends the digest of the current announcement to an agent that follows another
// announcement. The agent then reads the announcement again.
func (c *Coordinator) sendPresentAnnouncementDigest(agent wire.AgentID) {
	m := wire.HelloAnswer{Announcement: c.publisher.AnnouncementDigest(), SelectionStatus: wire.StatusNotSelected}
	c.sendToAgent(agent, wire.TypeHelloAnswer, c.runID, c.currentRound(), m.Body())
}

// MessageDropped reports that a received message was not used.
type MessageDropped struct {
	Kind   mqtt.TopicKind
	Agent  wire.AgentID // agent in the topic; may be empty
	Reason devices.DropReason
	Err    error
}

// Describe implements observe.Event.
func (e MessageDropped) Describe(d *observe.EventDescription) {
	d.IncCounter(DroppedMessages, host.DirectionReceived, string(e.Reason))
	d.Log(observe.Warn, "message dropped", "kind", e.Kind, "agent", e.Agent, "reason", e.Reason, "err", e.Err)
}

// MessageAccepted reports a message with a valid signature that is newer than the agent's previous messages.
type MessageAccepted struct {
	Agent       wire.AgentID
	RootVersion wire.RootVersion // version of the root document that the agent uses
	Presence    *wire.Presence   // content of a presence; nil for other messages
	Retained    bool             // true for a retained message, whose agent may be offline
}

// Describe implements observe.Event. It does nothing, because only the table of devices uses the event.
func (MessageAccepted) Describe(*observe.EventDescription) {}

var receivedReports = observe.Counter("reports_total", "Metrics reports received from agents.")

// AgentReportReceived reports that an agent sent a metrics report.
type AgentReportReceived struct {
	Agent     wire.AgentID
	BootEpoch wire.Epoch // process start (boot) of the agent since which its counters count
	Report    wire.AgentMetricsReport
}

// Describe implements observe.Event. The table of devices and the fleet metrics aggregate the reports.
func (AgentReportReceived) Describe(d *observe.EventDescription) { d.IncCounter(receivedReports) }
