// Package presence publishes the state of an agent: whether it is online, its metrics, and its absences from the
// broker. It detects a second device with the same identity, and reports why the coordinator ignores the agent's
// messages.
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

// Config is the configured content of presences and reports.
type Config struct {
	Software string // name and version of the program, for people
	// MinLostCounterEpoch is the lowest epoch of an earlier start, found retained at the broker, that shows that the
	// counter of starts is behind: the counter was lost, or an older copy was restored. The agent then ends with a
	// BootCounterLostError. 0 = the counter is not checked.
	MinLostCounterEpoch wire.Epoch
	MetricsReports      MetricsReportConfig
}

// Validate returns all errors of a configuration.
func (c *Config) Validate() error {
	var errs []error
	r := &c.MetricsReports
	if r.ReportInterval < 0 || r.ReportInterval%time.Second != 0 {
		errs = append(errs, fmt.Errorf("reports are whole seconds apart, not %v", r.ReportInterval))
	}
	if r.ReportInterval != 0 && r.ReadMetrics == nil {
		errs = append(errs, errors.New("reports need readings"))
	}
	if len(r.MetricsAddress) > wire.MaxName {
		errs = append(errs, fmt.Errorf("the address for scraping has %d bytes, more than %d", len(r.MetricsAddress),
			wire.MaxName))
	}
	return errors.Join(errs...)
}

// AgentCallbacks contains the functions of the agent that the part calls.
type AgentCallbacks struct {
	HasRoundWork func() bool // agentround.Machine.HasRoundWork
	// MayDisconnect reports whether the link is not needed now.
	MayDisconnect func() bool
	// OnDisconnect is called when the agent leaves the broker for a while.
	OnDisconnect func(d time.Duration)
	// OnKeyRejected is called when the coordinator's list has another key for this agent.
	OnKeyRejected func()
}

// AgentPresence is the presence of a running agent.
type AgentPresence struct {
	core      *part.AgentCore
	cfg       *Config
	callbacks AgentCallbacks
	nonce     uint64 // distinguishes this start from others with the same epoch

	// signedOnlineMessage is presence online, signed before the will of the same link; nil if the link has no will.
	signedOnlineMessage atomic.Pointer[mqtt.Message]
	isPresenceHidden    atomic.Bool // presence is not published now

	onlinePublished bool          // over this link
	plannedAbsence  time.Duration // the agent leaves for this time once the link is not needed; 0 = it stays
	reconnectAt     time.Time     // when the agent comes back; zero = it has not left
	hasAnnouncement bool          // an announcement has arrived

	clones       cloneDetector
	rejection    rejectionState
	nextReportAt time.Time // of the next report
}

// New makes the presence of an agent.
func New(core *part.AgentCore, cfg *Config, agent AgentCallbacks) *AgentPresence {
	return &AgentPresence{core: core, cfg: cfg, callbacks: agent, nonce: core.Rand.Uint64()}
}

// presenceMessage returns a signed presence.
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

// Will returns the message that the broker publishes when the link is lost. It is empty if presence is not published
// now. The presence that the agent publishes over the same link is signed before the will: of two messages of one
// type, the coordinator drops the older one if it arrives second. The connection calls Will from its own goroutine.
func (p *AgentPresence) Will() mqtt.Message {
	if p.isPresenceHidden.Load() {
		p.signedOnlineMessage.Store(nil)
		return mqtt.Message{}
	}
	first := p.presenceMessage(wire.PresenceOnline)
	p.signedOnlineMessage.Store(&first)
	return p.presenceMessage(wire.PresenceLost)
}

// publishOnline publishes presence online, once over a link. If only agents with work in a round publish their
// presence, it waits for such work. A link that begins without such work has no will.
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

// PublishOffline publishes presence offline, if presence online was published over this link. If only agents with work
// in a round publish their presence, the broker does not retain it.
func (p *AgentPresence) PublishOffline() {
	if !p.onlinePublished {
		return
	}
	m := p.presenceMessage(wire.PresenceOffline)
	m.Retained = !p.responsePolicy().PresenceInRoundOnly
	p.core.Publish(m)
	if !m.Retained {
		p.core.Publish(mqtt.Message{Topic: m.Topic, QoS: m.QoS, Retained: true}) // deletes the retained presence
	}
}

// PlanAbsence makes the agent leave the broker for a while, once the link is not needed.
func (p *AgentPresence) PlanAbsence(d time.Duration) { p.plannedAbsence = d }

// UpdatePresence publishes presence online if that has become due. It then leaves the broker if an absence is planned
// and the link is not needed. The agent calls it last before each wait.
func (p *AgentPresence) UpdatePresence() {
	p.publishOnline()
	d := p.plannedAbsence
	if d == 0 || !p.core.IsConnected || !p.callbacks.MayDisconnect() {
		return
	}
	p.core.Logger.Info("disconnects: it has no part in the round", "for", d.Round(time.Second))
	p.PublishOffline()
	p.callbacks.OnDisconnect(d)
	p.disconnect(d)
	p.plannedAbsence = 0
}

// disconnect leaves the broker for a while.
func (p *AgentPresence) disconnect(d time.Duration) {
	p.reconnectAt = p.core.Loop.Now().Add(d)
	p.core.Conn.DisconnectFor(d)
}

// LinkUp implements part.LinkFollower.
func (p *AgentPresence) LinkUp() {
	p.clones.recordLinkUp()
	p.core.Observer.Observe(host.BrokerLinkChanged{IsConnected: true})
	if p.reconnectAt.IsZero() { // otherwise agents come back at different times, and an overdue report is sent now
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
		p.planMetricsReport() // the first announcement arrives at all agents at once
	}
	p.hasAnnouncement = true
}

// FillHello implements part.HelloFiller.
func (p *AgentPresence) FillHello(h *wire.Hello) { h.InstanceNonce = p.nonce }

// Metrics are the metrics of this package's events.
var Metrics = []*observe.Metric{rejections}
