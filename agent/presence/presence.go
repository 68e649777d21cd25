// Package presence publishes the state of an agent: whether it is online, its metrics, and its planned disconnections.
// It detects a second device with the same identity and reports why the coordinator ignores messages.
package presence

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// Config configures presence messages and metrics reports.
type Config struct {
	Software string // name and version of the program
	// MinLostCounterEpoch is the minimum boot epoch of a retained presence message from an earlier start that proves
	// that the start counter was lost. The agent then stops with a BootCounterLostError. The value 0 disables this
	// check.
	MinLostCounterEpoch wire.Epoch
	MetricsReports      MetricsReportConfig
}

// Validate returns an error that lists all problems of the configuration.
func (c *Config) Validate() error {
	var errs []error
	r := &c.MetricsReports
	if r.ReportInterval < 0 || r.ReportInterval%time.Second != 0 {
		errs = append(errs, fmt.Errorf("the report interval is %v, but must be a whole number of seconds",
			r.ReportInterval))
	}
	if r.ReportInterval != 0 && r.ReadMetrics == nil {
		errs = append(errs, errors.New("metrics reports require a function that reads the metrics"))
	}
	if len(r.MetricsAddress) > wire.MaxName {
		errs = append(errs, fmt.Errorf("the metrics address has %d bytes, but at most %d are allowed",
			len(r.MetricsAddress),
			wire.MaxName))
	}
	return errors.Join(errs...)
}

// AgentCallbacks contains the functions of the agent that the part calls.
type AgentCallbacks struct {
	// function that reports whether the agent has work in a round (see agentround.Machine.HasRoundWork)
	HasRoundWork func() bool
	// MayDisconnect reports whether the agent may disconnect from the broker now.
	MayDisconnect func() bool
	// OnDisconnect is called when the agent disconnects for the duration d.
	OnDisconnect func(d time.Duration)
	// OnKeyRejected is called when the coordinator expects another public key of this agent.
	OnKeyRejected func()
}

// AgentPresence is the part of an agent that publishes its presence messages and metrics.
type AgentPresence struct {
	core      *part.AgentCore
	cfg       *Config
	callbacks AgentCallbacks
	nonce     uint64 // random number that distinguishes this start from others with the same epoch

	// signedOnlineMessage is the signed online presence for the current connection. It is nil if the connection has no
	// MQTT will.
	signedOnlineMessage atomic.Pointer[mqtt.Message]
	isPresenceHidden    atomic.Bool // true while the agent publishes no presence

	onlinePublished bool          // true after publishing the online presence on this connection
	plannedAbsence  time.Duration // duration of the planned disconnection; 0 if none is planned
	reconnectAt     time.Time     // time to reconnect; zero if the agent did not disconnect
	hasAnnouncement bool          // whether an announcement has been received since the start

	clones       cloneDetector
	rejection    rejectionState
	nextReportAt time.Time // time of the next metrics report
}

// New returns the part of an agent that publishes its presence.
func New(core *part.AgentCore, cfg *Config, agent AgentCallbacks) *AgentPresence {
	return &AgentPresence{core: core, cfg: cfg, callbacks: agent, nonce: core.Rand.Uint64()}
}

// presenceMessage returns a signed, retained MQTT message with the presence state s.
func (p *AgentPresence) presenceMessage(s wire.PresenceState) mqtt.Message {
	body := wire.Presence{State: s, InstanceNonce: p.nonce, MaxProtocolVersion: wire.ProtocolVersion,
		SoftwareVersion:    p.cfg.Software,
		HasVolatileStorage: p.core.StateFolder.Volatile}
	return mqtt.Message{
		Topic:   p.core.Topics.Presence(p.core.ID),
		Payload: p.core.Signer.SignedEnvelope(wire.TypePresence, 0, 0, body.Body()),
		QoS:     mqtt.AtMostOnce, Retained: true,
	}
}

// Will returns the MQTT will, or an empty message while the presence is hidden. It signs the online presence before the
// will, because the coordinator drops messages that arrive out of order. It runs on the connection's goroutine.
func (p *AgentPresence) Will() mqtt.Message {
	if p.isPresenceHidden.Load() {
		p.signedOnlineMessage.Store(nil)
		return mqtt.Message{}
	}
	first := p.presenceMessage(wire.PresenceOnline)
	p.signedOnlineMessage.Store(&first)
	return p.presenceMessage(wire.PresenceLost)
}

// publishOnline publishes the online presence once per connection. If the response policy requires this, it waits until
// the agent has work in a round, and a connection that begins without such work has no will.
func (p *AgentPresence) publishOnline() {
	p.isPresenceHidden.Store(p.responsePolicy().PresenceInRoundOnly && !p.callbacks.HasRoundWork())
	if !p.core.IsConnected || p.onlinePublished || p.isPresenceHidden.Load() {
		return
	}
	p.onlinePublished = true
	if m := p.signedOnlineMessage.Load(); m != nil {
		p.PublishAwaitingAnswer(*m)
	} else {
		p.PublishAwaitingAnswer(p.presenceMessage(wire.PresenceOnline))
	}
}

// responsePolicy returns the response policy of the last announcement.
func (p *AgentPresence) responsePolicy() *wire.AgentResponsePolicy {
	return &p.core.LastAnnouncement.Announcement.ResponsePolicy
}

// PublishOffline publishes the offline presence if the online presence was published on this connection. If presences
// are limited to rounds, it also deletes the retained presence.
func (p *AgentPresence) PublishOffline() {
	if !p.onlinePublished {
		return
	}
	m := p.presenceMessage(wire.PresenceOffline)
	m.Retained = !p.responsePolicy().PresenceInRoundOnly
	p.core.Publish(m)
	if !m.Retained {
		// An empty message deletes the retained presence.
		p.core.Publish(mqtt.Message{Topic: m.Topic, QoS: m.QoS, Retained: true})
	}
}

// PlanAbsence makes the agent disconnect for the duration d when no part needs the connection.
func (p *AgentPresence) PlanAbsence(d time.Duration) { p.plannedAbsence = d }

// UpdatePresence publishes the online presence if it is due. It then disconnects if an absence is planned and the
// connection is not needed. The agent calls it last before each wait.
func (p *AgentPresence) UpdatePresence() {
	p.publishOnline()
	d := p.plannedAbsence
	if d == 0 || !p.core.IsConnected || !p.callbacks.MayDisconnect() {
		return
	}
	p.core.Logger.Info("disconnecting: this agent is not a participant of the round", "duration", d.Round(time.Second))
	p.PublishOffline()
	p.callbacks.OnDisconnect(d)
	p.disconnect(d)
	p.plannedAbsence = 0
}

// disconnect disconnects from the broker for the duration d.
func (p *AgentPresence) disconnect(d time.Duration) {
	p.reconnectAt = p.core.Loop.Now().Add(d)
	p.core.Conn.DisconnectFor(d)
}

// LinkUp implements part.LinkFollower.
func (p *AgentPresence) LinkUp() {
	p.clones.recordLinkUp()
	p.core.Observer.Observe(host.BrokerLinkChanged{IsConnected: true})
	// After a planned absence agents reconnect at different times, so a report that is due is sent now.
	if p.reconnectAt.IsZero() {
		p.planMetricsReport()
	}
	p.onlinePublished, p.plannedAbsence, p.reconnectAt = false, 0, time.Time{}
	p.publishOnline()
}

// LinkDown implements part.LinkFollower.
func (p *AgentPresence) LinkDown(err error) {
	p.clones.recordLinkDown()
	if !errors.Is(err, mqtt.ErrPlannedDisconnect) {
		p.reconnectAt = time.Time{}
	}
	p.core.Observer.Observe(host.BrokerLinkChanged{Err: err, ReconnectAt: p.reconnectAt})
}

// ReceiveAnnouncement implements part.AnnouncementReceiver.
func (p *AgentPresence) ReceiveAnnouncement(agentround.AnnouncementReceived) {
	if !p.hasAnnouncement {
		// Spread the reports here too, since all agents may receive the announcement at the same time.
		p.planMetricsReport()
	}
	p.hasAnnouncement = true
}

// FillHello implements part.HelloFiller.
func (p *AgentPresence) FillHello(h *wire.Hello) { h.InstanceNonce = p.nonce }

// Metrics lists the metrics that the events of this package update.
var Metrics = []*observe.Metric{rejections}
