// Package devices decides which messages of which devices count. A device must be in the list of agents, with the key
// that has signed the message; the message must be newer than the previous ones of the device; and a second device with
// the same identity is reported. Devices whose messages are ignored get an answer with the reason.
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

// Config is the part's access to the coordinator.
type Config struct {
	Now      func() time.Time
	Topics   mqtt.Topics
	Observer observe.Observer
	Logger   *slog.Logger
	// SendToAgent sends a message that belongs to no round to an agent.
	SendToAgent func(agent wire.AgentID, t wire.MessageType, body []byte)
}

// MessageChecker has the list of agents, and the newest messages of each. All methods are called on the owner's
// goroutine.
type MessageChecker struct {
	cfg                                Config
	agentList                          *enrolled.List
	newestBySenderAndType              map[senderAndType]messageSerial // the newest message by sender and type
	cloneDetectorByAgent               map[wire.AgentID]*cloneDetector
	rejectionThrottle, renewalThrottle agentThrottle
	answerableDigestByAgent            map[wire.AgentID]wire.Digest // the newest message that a rejection may answer
}

// senderAndType and serial identify a message: an agent's messages of one type have increasing (epoch, sequence).
type senderAndType struct {
	agent       wire.AgentID
	messageType wire.MessageType
}

type messageSerial struct {
	epoch    wire.Epoch
	sequence uint64
}

// isNotNewerThan reports whether a message was sent before another one, or is the same.
func (s messageSerial) isNotNewerThan(last messageSerial) bool {
	return s.epoch < last.epoch || s.epoch == last.epoch && s.sequence <= last.sequence
}

// New makes the part with the list of agents, which it owns.
func New(list *enrolled.List, cfg Config) *MessageChecker {
	return &MessageChecker{cfg: cfg, agentList: list, newestBySenderAndType: map[senderAndType]messageSerial{},
		cloneDetectorByAgent: map[wire.AgentID]*cloneDetector{},
		rejectionThrottle:    newAgentThrottle(rejectionInterval, maxRejectionsPerInterval),
		renewalThrottle:      newAgentThrottle(RenewalInterval, MaxRenewalsPerInterval),

		answerableDigestByAgent: map[wire.AgentID]wire.Digest{}}
}

// AgentList returns the present list.
func (d *MessageChecker) AgentList() *enrolled.List { return d.agentList }

// AgentKey returns the public key of an agent; nil if the agent is not in the list, or the list cannot be read.
func (d *MessageChecker) AgentKey(agent wire.AgentID) ed25519.PublicKey {
	key, err := d.agentList.Key(agent)
	if err != nil {
		d.cfg.Logger.Error("an agent is treated as not listed", "agent", agent, "err", err)
	}
	return key
}

// ReplaceList puts another list in the place of the present one, which it returns. gone are those agents, in id order,
// that are no longer listed, or have another key now: they count as other devices. others are agents that the rest of
// the coordinator knows.
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

// ForgetAgents forgets the messages of agents, which are in id order: their next messages count, whatever they sent
// before.
func (d *MessageChecker) ForgetAgents(agents []wire.AgentID) {
	for _, agent := range agents {
		delete(d.cloneDetectorByAgent, agent)
	}
	maps.DeleteFunc(d.newestBySenderAndType, func(s senderAndType, _ messageSerial) bool {
		_, gone := slices.BinarySearch(agents, s.agent)
		return gone
	})
}

// ErrKnown says that the broker has delivered a retained message once more after a reconnect.
var ErrKnown = errors.New("known already")

// AcceptMessage accepts a message that its agent has signed. The error is ErrKnown, or a host.MessageDropError because
// the message is not newer than the previous ones.
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
		case now.epoch == last.epoch: // the broker has delivered it twice
		case isDeparture(e): // of the previous start; the broker sends it after the first messages of the next one
		case t != nil && t.bootAlternations > 0: // a start that was replaced has sent a message again
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

// NewestBootEpoch returns the number of the agent's start that has sent its newest message of a type; 0 if there is no
// such message.
func (d *MessageChecker) NewestBootEpoch(agent wire.AgentID, t wire.MessageType) wire.Epoch {
	return d.newestBySenderAndType[senderAndType{agent, t}].epoch
}

func newReplayedError(e *wire.Envelope, last messageSerial) error {
	return host.NewMessageDropError(DropReplayed, "%s with epoch %d sequence %d, after %d and %d", e.Type, e.Epoch,
		e.Sequence,
		last.epoch, last.sequence)
}

// isDeparture reports whether a message is an agent's goodbye, or its last will, which the broker publishes.
func isDeparture(e *wire.Envelope) bool {
	p, err := wire.DecodePresence(e.Body)
	return e.Type == wire.TypePresence && err == nil && p.State != wire.PresenceOnline
}

// A device gets another key or certificate at most once in RenewalInterval, and all devices together at most
// MaxRenewalsPerInterval times: each takes a signature and, with a key, a write of the list.
const (
	RenewalInterval        = 10 * time.Second
	MaxRenewalsPerInterval = 200
)

// AcceptRenewalRequest accepts a request for another key or certificate. The error is a host.MessageDropError.
func (d *MessageChecker) AcceptRenewalRequest(agent wire.AgentID, e *wire.Envelope) error {
	from, now := senderAndType{agent, e.Type}, messageSerial{e.Epoch, e.Sequence}
	if last := d.newestBySenderAndType[from]; now.isNotNewerThan(last) {
		return newReplayedError(e, last)
	}
	d.newestBySenderAndType[from] = now
	if !d.renewalThrottle.allowAgent(agent, d.cfg.Now()) {
		return host.NewMessageDropError(DropOverflow, "more than one %s in %s, or %d of all devices", e.Type,
			RenewalInterval,
			MaxRenewalsPerInterval)
	}
	return nil
}
