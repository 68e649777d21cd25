package agent

import (
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/wire"
)

// Waits of an agent that leaves the broker to its twin.
const (
	twinFirst = time.Minute
	twinMost  = time.Hour
)

// twin watches for a second device with this agent's identity, a clone of its
// disk, say. The broker lets only one of the two in, and each that comes back
// throws the other one out. What an agent then finds retained under its own
// name is its twin's last word. So is what an earlier start of its own left,
// or what a broker brings back after a crash; but only a twin that is alive
// has a newer word on a later link.
type twin struct {
	link  int      // counts the links of this process
	seen  sighting // the newest word of another start, if link is not 0
	here  bool     // the twin was seen alive on this link
	pause time.Duration
}

// sighting is a presence of another start under this agent's name.
type sighting struct {
	link     int
	epoch    wire.Epoch
	sequence uint64
}

func (t *twin) up() { t.link, t.here = t.link+1, false }

// down ends the link. One without a twin ends the growing of pauses.
func (t *twin) down() {
	if !t.here {
		t.pause = 0
	}
}

// sighted takes another start's word, and reports whether it is a twin's that
// is alive.
func (t *twin) sighted(epoch wire.Epoch, sequence uint64) bool {
	last := t.seen
	newer := epoch > last.epoch || epoch == last.epoch && sequence > last.sequence
	if last.link != 0 && !newer {
		return false
	}
	t.seen = sighting{t.link, epoch, sequence}
	if last.link == 0 || last.link == t.link {
		return false // its will may follow what it said last
	}
	t.here = true
	return true
}

// nextPause is longer each time.
func (t *twin) nextPause() time.Duration {
	t.pause = min(max(2*t.pause, twinFirst), twinMost)
	return t.pause
}

// receivePresence looks at what is retained under the agent's own name.
func (a *Agent) receivePresence(p []byte) error {
	e, err := wire.Open(p)
	if err != nil {
		return err
	}
	if e.Type != wire.TypePresence || e.Federation != a.cfg.Federation || e.Sender != a.cfg.ID {
		return host.Drop(DropForeign, "%s of %s in federation %s", e.Type, e.Sender, e.Federation)
	}
	if err := e.Verify(a.public); err != nil {
		return host.Drop(DropSignature, "%w: has this agent got a new key?", err)
	}
	m, err := wire.DecodePresence(e.Body)
	if err == nil && m.Nonce != a.signer.nonce && a.cfg.Behind > 0 && e.Epoch >= a.cfg.Behind && a.twin.link == 1 && a.twin.seen.link == 0 {
		a.behind = e.Epoch
		return nil
	}
	if err == nil && m.Nonce != a.signer.nonce && a.twin.sighted(e.Epoch, e.Sequence) {
		a.meetTwin(e, m.Nonce)
	}
	return err
}

// meetTwin decides which of the two goes on: the one with the higher boot
// epoch, since the coordinator hears no other, or else with the larger nonce.
// The other leaves the broker for a while.
func (a *Agent) meetTwin(e wire.Envelope, nonce uint64) {
	fact := CloneSeen{Boot: a.cfg.Boot, Nonce: a.signer.nonce, OtherBoot: e.Epoch, OtherNonce: nonce}
	goesOn := a.cfg.Boot > e.Epoch || a.cfg.Boot == e.Epoch && a.signer.nonce > nonce
	if !goesOn {
		wait := a.twin.nextPause()
		fact.Pause = wait*3/4 + time.Duration(a.cfg.Rand.Int64N(int64(wait/2)))
	}
	a.cfg.Observer.Observe(fact)
	if goesOn {
		a.signer.Overtake(e.Sequence + overtaking)
		return
	}
	a.publish(a.signer.presence(wire.StateOffline))
	a.conn.Pause(fact.Pause)
}
