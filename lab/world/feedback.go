package world

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/agent/upload"
	"github.com/fedmesh/fedmesh/wire"
)

// This file recomputes the error feedback of the codec top_k as docs/ALGORITHMS.md defines it, independently of the
// agent's code. The inputs are the computed updates and their fates.

// topKUpdate is an agent's newest update before compression, and the elements that were sent.
type topKUpdate struct {
	at    participation
	whole []float32
	sent  map[int]bool
	told  bool // true if the agent knows whether the coordinator used the update
	lost  bool // true if the agent has discarded an earlier residual because of this update

	before *topKUpdate // previous update
	had    []float32   // residual (unsent part) before this update
}

// keeping reports whether the agents keep a residual (the unsent part of an update) for error feedback.
func (c *invariantChecker) keeping() bool {
	_, t := c.w.plan.configure()
	_, ok := t.Training.UpdateCodec.TopKShare()
	return ok
}

// recordChange records an update that an agent has computed, before compression.
func (c *invariantChecker) recordChange(id wire.AgentID, change []float32) {
	if c.keeping() {
		c.changes[id] = slices.Clone(change)
	}
}

// checkUnsentPart checks the uncompressed update, which an agent saves behind the compressed payload. It must be the
// sum of the computed update and the agent's residual.
func (c *invariantChecker) checkUnsentPart(p *party, at participation, payload, behind []byte) {
	// The same update has been saved before.
	if !c.keeping() || len(behind) < 32 || c.offeredOf[at] == wire.BlobDigest(payload) {
		return
	}
	change := c.changes[p.id]
	o := topKUpdate{at: at, whole: make([]float32, (len(behind)-32)/4), sent: map[int]bool{}}
	if wire.DecodeVector(o.whole, behind[32:]) != nil || len(o.whole) != len(change) {
		c.w.fail("the pending update of %s in round %d does not have the size of the model change", p.id, at.round)
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
			c.w.fail("element %d of the pending update of %s in round %d is %v, but the change is %v and the "+
				"residual was %v", j, p.id,
				at.round, o.whole[j], x, e[j])
			return
		}
	}
	last := c.newestUpdateByAgent[p.id]
	last.before = nil
	o.before, o.had = &last, c.kept[p.id]
	c.newestUpdateByAgent[p.id], c.kept[p.id] = o, nil
}

// keptFor returns the residual that an agent adds to its update in round r. It returns nil if the agent does not know
// the fate of its previous update. It also returns nil if the columns have been standardised again since that update.
func (c *invariantChecker) keptFor(id wire.AgentID, r wire.RoundID, o *topKUpdate) []float32 {
	last, e := c.newestUpdateByAgent[id], c.kept[id]
	others := last.at.round < c.restandardizedAfter && c.restandardizedAfter < r
	if last.whole != nil && !last.told || others {
		o.lost = e != nil || !last.told
		return nil
	}
	return e
}

// startsWithUnsent updates the checker when an agent restarts. If the agent has a saved update but no record of the
// update's fate, the coordinator must send the fate again. If the agent has the record, it may have stopped before it
// reported the fate.
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

// keepsUnsent checks the residual that an agent reports after a round. The expected residual depends on the fate of the
// update.
func (c *invariantChecker) keepsUnsent(p *party, f upload.ResidualChanged) {
	o := c.newestUpdateByAgent[p.id]
	if o.at.round != f.Round {
		return // the agent's disk failed, or the agent has trained again
	}
	if f.ResidualLost && o.lost {
		o.lost = false // the event concerns an earlier residual
		c.newestUpdateByAgent[p.id] = o
		return
	}
	want, known := c.residualAfter(&o)
	if !known && !f.ResidualLost {
		c.w.fail("%s settles its residual of round %d before the fate of the update is known", p.id, f.Round)
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
		c.w.fail("%s has a residual of norm %v from round %d, want %v", p.id, f.Norm, f.Round, math.Sqrt(sum))
	}
	o.told = true
	c.newestUpdateByAgent[p.id], c.kept[p.id] = o, want
	c.residuals++
}

// onlyMixed restores the state before the update of round r, because the agent does not send this update. The draws of
// the agent have moved to another agent.
func (c *invariantChecker) onlyMixed(id wire.AgentID, r wire.RoundID) {
	if o := c.newestUpdateByAgent[id]; o.at.round == r && o.before != nil {
		c.newestUpdateByAgent[id], c.kept[id] = *o.before, o.had
	}
}

// residualAfter returns the residual that an agent must keep after an update. known is false while the fate of the
// update is undecided.
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
