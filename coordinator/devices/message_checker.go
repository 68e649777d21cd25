// Package devices decides which messages of devices are accepted. The device must be in the list of agents, with the
// key that signed the message. The message must be newer than the previous messages of the device.
//
// The package reports a second device with the same identity. Devices whose messages are ignored receive a rejection
// with the reason.
package devices

import (
	"crypto/ed25519"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/enrolled"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// Config configures a MessageChecker.
type Config struct {
	Now      func() time.Time
	Topics   mqtt.Topics
	Observer observe.Observer
	Logger   *slog.Logger
	// SendToAgent sends an agent a message that does not belong to a round.
	SendToAgent func(agent wire.AgentID, t wire.MessageType, body []byte)
}

// MessageChecker holds the list of agents and the serial of each agent's newest message. All methods must be called on
// the owner goroutine.
type MessageChecker struct {
	cfg       Config
	agentList *enrolled.List
	// newestBySenderAndType holds the serial of the newest message, by sender and type.
	newestBySenderAndType              map[senderAndType]messageSerial
	cloneDetectorByAgent               map[wire.AgentID]*cloneDetector
	rejectionThrottle, renewalThrottle agentThrottle
	// answerableDigestByAgent contains the digest of each agent's newest message to which a later rejection may refer.
	answerableDigestByAgent map[wire.AgentID]wire.Digest
}

// senderAndType identifies a stream of messages. Within a stream, the pair (epoch, sequence number) increases with each
// message.
type senderAndType struct {
	agent       wire.AgentID
	messageType wire.MessageType
}

type messageSerial struct {
	epoch    wire.Epoch
	sequence uint64
}

// isNotNewerThan reports whether a message is older than, or the same as, the message with serial last.
func (s messageSerial) isNotNewerThan(last messageSerial) bool {
	return s.epoch < last.epoch || s.epoch == last.epoch && s.sequence <= last.sequence
}

// New returns a MessageChecker that owns the given list of agents.
func New(list *enrolled.List, cfg Config) *MessageChecker {
	return &MessageChecker{cfg: cfg, agentList: list, newestBySenderAndType: map[senderAndType]messageSerial{},
		cloneDetectorByAgent: map[wire.AgentID]*cloneDetector{},
		rejectionThrottle:    newAgentThrottle(rejectionInterval, maxRejectionsPerInterval),
		renewalThrottle:      newAgentThrottle(RenewalInterval, MaxRenewalsPerInterval),

		answerableDigestByAgent: map[wire.AgentID]wire.Digest{}}
}

// AgentList returns the current list of agents.
func (d *MessageChecker) AgentList() *enrolled.List { return d.agentList }

// AgentKey returns the public key of an agent. It returns nil if the agent is not in the list or the list cannot be
// read.
func (d *MessageChecker) AgentKey(agent wire.AgentID) ed25519.PublicKey {
	key, err := d.agentList.Key(agent)
	if err != nil {
		d.cfg.Logger.Error("cannot read an agent's key from the list of agents; treating the agent as unknown", "agent",
			agent, "err",
			err)
	}
	return key
}

// ReplaceList replaces the list of agents and returns the previous list. gone contains, in order, the agents that are
// no longer listed or have another key. others are further agents to check.
func (d *MessageChecker) ReplaceList(list *enrolled.List, others []wire.AgentID) (before *enrolled.List,
	gone []wire.AgentID) {
	before, d.agentList = d.agentList, list
	known := slices.AppendSeq(slices.Clone(others), maps.Keys(d.cloneDetectorByAgent))
	for s := range d.newestBySenderAndType {
		known = append(known, s.agent)
	}
	slices.Sort(known)
	for _, agent := range slices.Compact(known) {
		was, err := before.Key(agent)
		if is := d.AgentKey(agent); err != nil || !is.Equal(was) {
			gone = append(gone, agent)
		}
	}
	return before, gone
}

// ForgetAgents forgets the serials of the given agents, which must be sorted. Their next messages are accepted with any
// serial.
func (d *MessageChecker) ForgetAgents(agents []wire.AgentID) {
	for _, agent := range agents {
		delete(d.cloneDetectorByAgent, agent)
	}
	maps.DeleteFunc(d.newestBySenderAndType, func(s senderAndType, _ messageSerial) bool {
		_, gone := slices.BinarySearch(agents, s.agent)
		return gone
	})
}

// ErrKnown means that the broker delivered a known retained message again after a reconnect.
var ErrKnown = errors.New("message already known")

// AcceptMessage checks that a signed message is newer than the agent's previous messages. It returns ErrKnown for a
// repeated presence and a host.MessageDropError for other old messages.
func (d *MessageChecker) AcceptMessage(agent wire.AgentID, e *wire.Envelope, m mqtt.Message) error {
	if d.detectClone(agent, e) {
		d.RejectMessage(agent, e, m, wire.RejectedClone)
	}
	from, now := senderAndType{agent, e.Type}, messageSerial{e.Epoch, e.Sequence}
	last := d.newestBySenderAndType[from]
	switch {
	case now == last && e.Type == wire.TypePresence:
		return ErrKnown
	case now.isNotNewerThan(last):
		switch t := d.cloneDetectorByAgent[agent]; {
		case now.epoch == last.epoch: // the broker delivered the message twice
		case isDeparture(e): // The last will of the previous boot may arrive after messages of the next boot.
		case t != nil && t.bootAlternations > 0: // another boot of the agent has sent messages since
			d.RejectMessage(agent, e, m, wire.RejectedClone)
		default:
			d.RejectMessage(agent, e, m, wire.RejectedOldEpoch)
		}
		return newReplayedError(e, last)
	}
	d.newestBySenderAndType[from] = now
	if isAnswerable(e, m) {
		d.answerableDigestByAgent[agent] = digestOfMessageHeader(m)
	}
	return nil
}

// NewestBootEpoch returns the epoch of the agent's newest message of a type, or 0 without such a message.
func (d *MessageChecker) NewestBootEpoch(agent wire.AgentID, t wire.MessageType) wire.Epoch {
	return d.newestBySenderAndType[senderAndType{agent, t}].epoch
}

func newReplayedError(e *wire.Envelope, last messageSerial) error {
	return host.NewMessageDropError(DropReplayed,
		"replayed %s: epoch %d, sequence number %d is not newer than the last accepted epoch %d, sequence number %d",
		e.Type, e.Epoch,
		e.Sequence,
		last.epoch, last.sequence)
}

// isDeparture reports whether a message is an agent's goodbye or its last will.
func isDeparture(e *wire.Envelope) bool {
	p, err := wire.DecodePresence(e.Body)
	return e.Type == wire.TypePresence && err == nil && p.State != wire.PresenceOnline
}

// Limits for the renewal of keys and certificates: the interval per device, and the maximum for all devices per
// interval. Each renewal requires a signature; a new key also requires writing the list.
const (
	RenewalInterval        = 10 * time.Second
	MaxRenewalsPerInterval = 200
)

// AcceptRenewalRequest checks a request for a new key or certificate and applies the rate limits. The error is a
// host.MessageDropError.
func (d *MessageChecker) AcceptRenewalRequest(agent wire.AgentID, e *wire.Envelope) error {
	from, now := senderAndType{agent, e.Type}, messageSerial{e.Epoch, e.Sequence}
	if last := d.newestBySenderAndType[from]; now.isNotNewerThan(last) {
		return newReplayedError(e, last)
	}
	d.newestBySenderAndType[from] = now
	if !d.renewalThrottle.allowAgent(agent, d.cfg.Now()) {
		return host.NewMessageDropError(DropOverflow,
			"rate limit exceeded: a device may send one %s every %s, and all devices together may send %d", e.Type,
			RenewalInterval,
			MaxRenewalsPerInterval)
	}
	return nil
}
