package world

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/agent/upload"
	"github.com/fedmesh/fedmesh/wire"
)

// This file follows what the codec top_k has not sent from what the agents have computed and from what became of their
// updates, as docs/ALGORITHMS.md says it, with no code of the agent's.

// topKUpdate is an agent's newest update, and what was to be sent.
type topKUpdate struct {
	at    participation
	whole []float32
	sent  map[int]bool
	told  bool // the agent knows what became of it
	lost  bool // what was kept before was given up for it

	before *topKUpdate // the one before it
	had    []float32   // what was kept then
}

// keeping is whether agents keep what is not sent.
func (c *invariantChecker) keeping() bool {
	_, t := c.w.plan.configure()
	_, ok := t.Training.UpdateCodec.TopKShare()
	return ok
}

// recordChange takes a change that an agent has computed.
func (c *invariantChecker) recordChange(id wire.AgentID, change []float32) {
	if c.keeping() {
		c.changes[id] = slices.Clone(change)
	}
}

// checkUnsentPart holds what an update was to send, which stands on its agent's disk behind the payload, against the
// change that was computed and what the agent had kept.
func (c *invariantChecker) checkUnsentPart(p *party, at participation, payload, behind []byte) {
	if !c.keeping() || len(behind) < 32 || c.offeredOf[at] == wire.BlobDigest(payload) { // or written once more
		return
	}
	change := c.changes[p.id]
	o := topKUpdate{at: at, whole: make([]float32, (len(behind)-32)/4), sent: map[int]bool{}}
	if wire.DecodeVector(o.whole, behind[32:]) != nil || len(o.whole) != len(change) {
		c.w.fail("what %s was to send in round %d is no change", p.id, at.round)
		return
	}
	for i := 0; i+8 <= len(payload); i += 8 {
		o.sent[int(binary.LittleEndian.Uint32(payload[i:]))] = true
	}
	e := c.keptFor(p.id, at.round, &o)
	if e == nil {
		e = make([]float32, len(change))
	}
	for j, x := range change {
		if o.whole[j] != x+e[j] && !p.hadTrouble {
			c.w.fail("element %d that %s is to send in round %d is %v; the change is %v and %v was kept", j, p.id,
				at.round, o.whole[j], x, e[j])
			return
		}
	}
	last := c.newestUpdateByAgent[p.id]
	last.before = nil
	o.before, o.had = &last, c.kept[p.id]
	c.newestUpdateByAgent[p.id], c.kept[p.id] = o, nil
}

// keptFor is what an agent has kept that goes with a round's update: nothing while nobody has told it what became of
// the last one, or if the columns have been standardised anew since.
func (c *invariantChecker) keptFor(id wire.AgentID, r wire.RoundID, o *topKUpdate) []float32 {
	last, e := c.newestUpdateByAgent[id], c.kept[id]
	others := last.at.round < c.restandardizedAfter && c.restandardizedAfter < r
	if last.whole != nil && !last.told || others {
		o.lost = e != nil || !last.told
		return nil
	}
	return e
}

// startsWithUnsent: an agent that starts with its last update and no record of what became of it has to be told again.
// An agent that has the record may have had no time to tell so.
func (c *invariantChecker) startsWithUnsent(p *party, onDisk participation) {
	o, known := c.newestUpdateByAgent[p.id]
	if !known || o.whole == nil {
		return
	}
	settled := settledUnsent(p.disk.file) >= o.at.round
	switch {
	case settled && !o.told:
		c.kept[p.id], o.told = c.residualAfter(&o)
	case !settled && onDisk == o.at:
		o.told = false
	}
	c.newestUpdateByAgent[p.id] = o
}

// keepsUnsent holds what an agent keeps after a round against what became of its update.
func (c *invariantChecker) keepsUnsent(p *party, f upload.ResidualChanged) {
	o := c.newestUpdateByAgent[p.id]
	if o.at.round != f.Round {
		return // its disk had trouble, or it has trained again meanwhile
	}
	if f.ResidualLost && o.lost {
		o.lost = false // it tells so of what it had kept before
		c.newestUpdateByAgent[p.id] = o
		return
	}
	want, known := c.residualAfter(&o)
	if !known && !f.ResidualLost {
		c.w.fail("%s settles what it keeps of round %d before anybody knows what becomes of it", p.id, f.Round)
		return
	}
	if f.ResidualLost {
		want = nil
	}
	sum := 0.0
	for _, x := range want {
		sum += float64(x) * float64(x)
	}
	if math.Abs(math.Sqrt(sum)-f.Norm) > 1e-9*(1+f.Norm) {
		c.w.fail("%s keeps %v of round %d, want %v", p.id, f.Norm, f.Round, math.Sqrt(sum))
	}
	o.told = true
	c.newestUpdateByAgent[p.id], c.kept[p.id] = o, want
	c.residuals++
}

// onlyMixed takes back an update that its agent was to send and is not, since another has got its draws.
func (c *invariantChecker) onlyMixed(id wire.AgentID, r wire.RoundID) {
	if o := c.newestUpdateByAgent[id]; o.at.round == r && o.before != nil {
		c.newestUpdateByAgent[id], c.kept[id] = *o.before, o.had
	}
}

// residualAfter is what an agent is to keep of an update. It reports false while nobody knows what becomes of that.
func (c *invariantChecker) residualAfter(o *topKUpdate) (e []float32, known bool) {
	if _, closed := c.sets[o.at.round]; !closed && !c.abandoned[o.at.round] {
		return nil, false
	}
	switch c.fateOf(o.at, c.offeredOf[o.at]) {
	case wire.FateAggregated:
		e = slices.Clone(o.whole)
		for j := range o.sent {
			e[j] = 0
		}
	case wire.FateRoundAbandoned, wire.FateMissedRoundEnd:
		e = o.whole
	}
	return e, true
}
