package presence

import (
	"crypto/ed25519"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

const (
	// minClonePause and maxClonePause bound the time for which an agent disconnects after it has detected a second
	// device with its identity (a clone).
	minClonePause = time.Minute
	maxClonePause = time.Hour
	// cloneSequenceMargin is added to the newest sequence number of a clone (a second device with the same identity) to
	// obtain the agent's next number. It exceeds the number of messages that the clone sends before it detects this
	// agent.
	cloneSequenceMargin = 1 << 20
)

// cloneDetector detects a second device with this agent's identity, such as a clone of its disk. The broker admits only
// one of them at a time, so each connection ends the other's.
//
// A retained presence under the agent's name may be from a clone or from an earlier start of this agent. Only a running
// clone publishes a newer presence before a later connection.
type cloneDetector struct {
	linkNumber    int           // number of connections to the broker since this process started
	lastSighting  cloneSighting // newest presence of another process; linkNumber 0 means none
	isCloneOnLink bool          // true if this connection has shown a running clone
	lastPause     time.Duration // duration of the last disconnection because of a clone
}

// cloneSighting is a presence message that another process has published under this agent's ID.
type cloneSighting struct {
	linkNumber int
	epoch      wire.Epoch
	sequence   uint64
}

func (d *cloneDetector) recordLinkUp() { d.linkNumber, d.isCloneOnLink = d.linkNumber+1, false }

// recordLinkDown records the end of a connection. If no clone was detected on it, the next pause starts at
// minClonePause again.
func (d *cloneDetector) recordLinkDown() {
	if !d.isCloneOnLink {
		d.lastPause = 0
	}
}

// detectClone records a presence message of another process. It returns true if the message proves that a clone is
// running.
func (d *cloneDetector) detectClone(epoch wire.Epoch, sequence uint64) bool {
	last := d.lastSighting
	newer := epoch > last.epoch || epoch == last.epoch && sequence > last.sequence
	if last.linkNumber != 0 && !newer {
		return false
	}
	d.lastSighting = cloneSighting{d.linkNumber, epoch, sequence}
	if last.linkNumber == 0 || last.linkNumber == d.linkNumber {
		return false // The message may be the MQTT will of an earlier process of this agent.
	}
	d.isCloneOnLink = true
	return true
}

// nextClonePause returns twice the previous pause, within minClonePause and maxClonePause.
func (d *cloneDetector) nextClonePause() time.Duration {
	d.lastPause = min(max(2*d.lastPause, minClonePause), maxClonePause)
	return d.lastPause
}

// BootCounterLostError stops an agent that has found a retained presence message from one of its earlier starts, with
// the higher boot epoch Epoch. The agent's start counter was lost or restored from an older copy, and the next start
// must use a higher number.
type BootCounterLostError struct{ Epoch wire.Epoch }

func (e *BootCounterLostError) Error() string {
	return fmt.Sprintf("agent: the start counter is too low: the broker retains a presence message from start %d of "+
		"this agent",
		e.Epoch)
}

// ReceivePresence checks a presence message under this agent's ID. If a running clone has sent the message, one of the
// two devices disconnects for a while: the device with the lower epoch, whose messages the coordinator ignores, or at
// equal epochs the device with the lower nonce.
func (p *AgentPresence) ReceivePresence(payload []byte) error {
	e, err := wire.ParseEnvelope(payload)
	if err != nil {
		return err
	}
	if e.Type != wire.TypePresence || e.Federation != p.core.Federation || e.Sender != p.core.ID {
		return host.NewMessageDropError(part.DropMisaddressed, "unexpected %s message from %s in federation %s",
			e.Type, e.Sender,
			e.Federation)
	}
	own := p.core.Signer
	if err := e.VerifyWithScheme(own.SignatureScheme, own.Key.Public().(ed25519.PublicKey)); err != nil {
		return host.NewMessageDropError(part.DropSignature, "%w: the key of this agent may have changed", err)
	}
	m, err := wire.DecodePresence(e.Body)
	if err != nil || m.InstanceNonce == p.nonce {
		return err
	}
	lost, d := p.cfg.MinLostCounterEpoch, &p.clones
	if lost > 0 && e.Epoch >= lost && d.linkNumber == 1 && d.lastSighting.linkNumber == 0 {
		p.core.StopAgent(&BootCounterLostError{e.Epoch})
		return nil
	}
	if !d.detectClone(e.Epoch, e.Sequence) {
		return nil
	}
	event := CloneSeen{Boot: own.Epoch, Nonce: p.nonce, OtherBoot: e.Epoch, OtherNonce: m.InstanceNonce}
	if own.Epoch > e.Epoch || own.Epoch == e.Epoch && p.nonce > m.InstanceNonce {
		p.core.Observer.Observe(event)
		own.SkipSequencePast(e.Sequence + cloneSequenceMargin)
		return nil
	}
	pause := d.nextClonePause()
	event.DisconnectDuration = pause*3/4 + time.Duration(p.core.Rand.Int64N(int64(pause/2)))
	p.core.Observer.Observe(event)
	p.core.Publish(p.presenceMessage(wire.PresenceOffline))
	p.disconnect(event.DisconnectDuration)
	return nil
}

// CloneSeen reports that another running device (a clone) uses this agent's identity.
type CloneSeen struct {
	Boot, OtherBoot    wire.Epoch
	Nonce, OtherNonce  uint64
	DisconnectDuration time.Duration // time for which this agent disconnects; 0 if it stays connected
}

// Describe implements observe.Event. The condition lasts until the next start.
func (e CloneSeen) Describe(d *observe.EventDescription) {
	const remedy = "give one of the devices its own id and key (`agentd key new`), and restart it"
	d.IncCounter(host.ClonesSeen)
	attributes := []any{"start", fmt.Sprintf("%d (%016x)", e.Boot, e.Nonce),
		"other_start", fmt.Sprintf("%d (%016x)", e.OtherBoot, e.OtherNonce)}
	if e.DisconnectDuration > 0 {
		attributes = append(attributes, "disconnects_for", e.DisconnectDuration.Round(time.Second))
	}
	d.Log(observe.Error, "another device uses the identity of this agent", attributes...)
	d.RaiseCondition("clone", "another device uses the identity of this agent", remedy)
}
