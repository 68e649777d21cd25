package agent

import (
	"crypto/ed25519"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// Waits of an agent that leaves the broker to its clone.
const (
	minClonePause = time.Minute
	maxClonePause = time.Hour
)

// cloneDetector watches for a second device with this agent's identity, a clone of its
// disk, say. The broker lets only one of the two in, and each that comes back
// throws the other one out. The presence that an agent then finds retained under
// its own name is its clone's. It may also be that of an earlier start, or one
// that a broker brings back after a crash; but only a clone that is alive has a
// newer one on a later link.
type cloneDetector struct {
	linkNumber   int           // counts the links of this process
	lastSighting cloneSighting // the newest word of another start, if link is not 0
	cloneOnLink  bool          // the clone was seen alive on this link
	pause        time.Duration
}

// cloneSighting is a presence of another start under this agent's name.
type cloneSighting struct {
	linkNumber int
	epoch      wire.Epoch
	sequence   uint64
}

func (t *cloneDetector) up() { t.linkNumber, t.cloneOnLink = t.linkNumber+1, false }

// down ends the link. A link without a clone ends the growing of pauses.
func (t *cloneDetector) down() {
	if !t.cloneOnLink {
		t.pause = 0
	}
}

// noteSighting takes another start's word, and reports whether it is a clone's that
// is alive.
func (t *cloneDetector) noteSighting(epoch wire.Epoch, sequence uint64) bool {
	last := t.lastSighting
	newer := epoch > last.epoch || epoch == last.epoch && sequence > last.sequence
	if last.linkNumber != 0 && !newer {
		return false
	}
	t.lastSighting = cloneSighting{t.linkNumber, epoch, sequence}
	if last.linkNumber == 0 || last.linkNumber == t.linkNumber {
		return false // its will may follow what it said last
	}
	t.cloneOnLink = true
	return true
}

// nextPause is longer each time.
func (t *cloneDetector) nextPause() time.Duration {
	t.pause = min(max(2*t.pause, minClonePause), maxClonePause)
	return t.pause
}

// receivePresence looks at what is retained under the agent's own name.
func (a *Agent) receivePresence(p []byte) error {
	e, err := wire.ParseEnvelope(p)
	if err != nil {
		return err
	}
	if e.Type != wire.TypePresence || e.Federation != a.cfg.Federation || e.Sender != a.cfg.ID {
		return host.NewDropError(part.DropMisaddressed, "%s of %s in federation %s", e.Type, e.Sender, e.Federation)
	}
	if err := e.VerifyBy(a.cfg.Signatures, a.core.Signer.Key.Public().(ed25519.PublicKey)); err != nil {
		return host.NewDropError(part.DropSignature, "%w: has this agent got a new key?", err)
	}
	m, err := wire.DecodePresence(e.Body)
	if err == nil && m.Nonce != a.signer.nonce && a.cfg.LostCounterEpoch > 0 && e.Epoch >= a.cfg.LostCounterEpoch &&
		a.clones.linkNumber == 1 &&
		a.clones.lastSighting.linkNumber == 0 {
		a.core.Stop(&BootCounterLostError{e.Epoch})
		return nil
	}
	if err == nil && m.Nonce != a.signer.nonce && a.clones.noteSighting(e.Epoch, e.Sequence) {
		a.resolveCloneConflict(e, m.Nonce)
	}
	return err
}

// resolveCloneConflict decides which of the two goes on: the one with the higher boot
// epoch, since the coordinator hears no other, or else with the larger nonce.
// The other leaves the broker for a while.
func (a *Agent) resolveCloneConflict(e wire.Envelope, nonce uint64) {
	event := CloneSeen{Boot: a.cfg.Boot, Nonce: a.signer.nonce, OtherBoot: e.Epoch, OtherNonce: nonce}
	goesOn := a.cfg.Boot > e.Epoch || a.cfg.Boot == e.Epoch && a.signer.nonce > nonce
	if !goesOn {
		wait := a.clones.nextPause()
		event.Pause = wait*3/4 + time.Duration(a.cfg.Rand.Int64N(int64(wait/2)))
	}
	a.cfg.Observer.Observe(event)
	if goesOn {
		a.signer.SkipSequencePast(e.Sequence + cloneSequenceMargin)
		return
	}
	a.publish(a.signer.presence(wire.StateOffline))
	a.disconnectFor(event.Pause)
}

// CloneSeen: another device uses this agent's identity and is alive.
type CloneSeen struct {
	Boot, OtherBoot   wire.Epoch
	Nonce, OtherNonce uint64
	Pause             time.Duration // for which this agent leaves the broker; 0 = it stays connected
}

// Describe implements observe.Event. The condition lasts until the next start.
func (e CloneSeen) Describe(d *observe.Description) {
	const remedy = "give one of them an id and a key of its own (`agentd key new`), and restart it"
	d.Inc(host.ClonesSeen)
	attributes := []any{"start", fmt.Sprintf("%d (%016x)", e.Boot, e.Nonce),
		"other_start", fmt.Sprintf("%d (%016x)", e.OtherBoot, e.OtherNonce)}
	if e.Pause > 0 {
		attributes = append(attributes, "disconnects_for", e.Pause.Round(time.Second))
	}
	d.Log(observe.Error, "another device has the identity of this agent", attributes...)
	d.Fail("clone", "another device has the identity of this agent", remedy)
}
