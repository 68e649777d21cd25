package coordinator

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// tellClones is how often the same agent's clones are told of.
const tellClones = time.Hour

// cloneDetector holds the two starts of one agent that were heard last. A restart is
// heard once, and the start before it never again, unless a broker brings an
// old word of it back. Where each of the two speaks again after the other, and
// newer than before, two devices have one identity.
type cloneDetector struct {
	present, former start
	turns           int // of one speaking again after the other
	told            time.Time
}

// start is one start of an agent. Clones may share the epoch, never the nonce.
type start struct {
	epoch    wire.Epoch
	nonce    uint64
	sequence uint64 // of its newest word
}

func (s start) same(o start) bool { return s.epoch == o.epoch && s.nonce == o.nonce }

// heard takes a start's word, and reports whether the two starts take turns.
func (t *cloneDetector) heard(s start) bool {
	switch {
	case s.same(t.present):
		t.present.sequence = max(t.present.sequence, s.sequence)
		return false
	case s.same(t.former):
		if s.sequence <= t.former.sequence {
			return false // an old message
		}
		t.turns++
	default:
		t.turns = 0
	}
	t.present, t.former = s, t.present
	return t.turns >= 2
}

// nonceOf returns the nonce in a greeting. A will is none: the broker says it,
// perhaps after the first words of the next start.
func nonceOf(e *wire.Envelope) (nonce uint64, ok bool) {
	switch e.Type {
	case wire.TypeHello:
		m, err := wire.DecodeHello(e.Body)
		return m.Nonce, err == nil
	case wire.TypePresence:
		m, err := wire.DecodePresence(e.Body)
		return m.Nonce, err == nil && m.State == wire.StateOnline
	}
	return 0, false
}

// watchClones looks at a message that its agent has signed, before anything
// older than the newest start's is dropped.
func (c *Coordinator) watchClones(agent wire.AgentID, e *wire.Envelope) {
	nonce, ok := nonceOf(e)
	if !ok {
		return
	}
	t := c.clones[agent]
	if t == nil {
		t = new(cloneDetector)
		c.clones[agent] = t
	}
	now := time.Now()
	if t.heard(start{e.Epoch, nonce, e.Sequence}) && (t.told.IsZero() || now.Sub(t.told) >= tellClones) {
		t.told = now
		c.cfg.Observer.Observe(CloneSeen{
			Agent: agent, Boots: [2]wire.Epoch{t.former.epoch, t.present.epoch},
			Nonces: [2]uint64{t.former.nonce, t.present.nonce},
		})
	}
}
