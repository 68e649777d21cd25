package coordinator

import (
	"errors"
	"time"

	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// offer is an update that the machine has judged by its manifest.
type offer struct {
	agent  wire.AgentID
	boot   wire.Epoch
	update wire.Update
	sealed []byte // the signed manifest, kept with the update
}

// openSpoolOf opens the spool of the record's round, if it needs one, and
// returns what is in it. What a crash left of other rounds is removed.
func (c *Coordinator) openSpoolOf(r round.Record) (map[wire.AgentID]wire.Digest, error) {
	keep := r.Round
	if r.Phase != round.CoordinatorCollecting && r.Phase != round.CoordinatorClosing {
		keep = 0
	}
	if err := c.disk.removeSpoolsBut(keep); err != nil || keep == 0 {
		return nil, err
	}
	id := store.SpoolID{Run: uint64(r.Run), Round: uint64(r.Round), Base: r.Plan.Base.Hash}
	s, err := store.OpenSpool(c.disk.spoolPath(r.Round), id, func(problem string) {
		c.cfg.Logger.Warn("the spool was damaged; its agent is asked again", "round", r.Round, "problem", problem)
	})
	if err != nil {
		return nil, err
	}
	c.spools[r.Round] = s
	spooled := map[wire.AgentID]wire.Digest{}
	for _, e := range s.Entries() {
		spooled[wire.AgentID(e.Agent)] = e.Digest
	}
	return spooled, nil
}

// receive steps the transfers and does what they ask for.
func (c *Coordinator) receive(ev transfer.ReceiveEvent) {
	for _, e := range c.receiver.Step(time.Now(), ev) {
		switch e := e.(type) {
		case transfer.Grant:
			c.tell(e.Agent, wire.TypeCredit, c.runID, c.shown, e.Credit.Body())
		case transfer.Complete:
			c.keep(e)
		case transfer.Refuse:
			c.reject(e.Agent, c.shown, e.Digest, e.Reason)
		}
	}
	s := c.receiver.Stats()
	if t := (TransfersChanged{s.Receiving, s.Queued, s.BufferedBytes}); t != c.transfers {
		c.transfers = t
		c.cfg.Observer.Observe(t)
	}
}

// forget ends the transfer of an agent.
func (c *Coordinator) forget(agent wire.AgentID) {
	delete(c.offers, agent)
	c.receive(transfer.Drop{Agent: agent})
}

// reject ends the part of an agent in that round, which may be over by now.
func (c *Coordinator) reject(agent wire.AgentID, r wire.RoundID, update wire.Digest, reason wire.RefuseReason) {
	c.step(round.Rejected{Agent: agent, Round: r, Update: update, Reason: reason})
}

// keep checks a whole update and puts it into the round's spool, beside the
// owner: concurrent updates share an fsync.
func (c *Coordinator) keep(e transfer.Complete) {
	o, r := c.offers[e.Agent], c.machine.Record()
	spool := c.spools[r.Round]
	if o == nil || spool == nil || o.update.Payload.Hash != e.Digest {
		return
	}
	ctx, kind, most := c.ctx, r.Plan.Kind, c.cfg.MaxNorm
	c.start(func() func() {
		norm, reason := check(kind, e.Payload, most)
		if reason != 0 {
			return func() { c.reject(e.Agent, r.Round, e.Digest, reason) }
		}
		err := spool.Put(ctx, store.Entry{Agent: string(e.Agent), Digest: e.Digest, Meta: o.sealed, Size: int64(len(e.Payload))}, e.Payload)
		return func() { c.kept(o, r.Round, norm, err) }
	})
}

// kept accepts an update that is on disk.
func (c *Coordinator) kept(o *offer, r wire.RoundID, norm float64, err error) {
	digest := o.update.Payload.Hash
	switch {
	case errors.Is(err, store.ErrConflict):
		c.reject(o.agent, r, digest, wire.RefuseConflict)
	case errors.Is(err, store.ErrClosed):
		c.reject(o.agent, r, digest, wire.RefuseLate)
	case err != nil:
		c.cfg.Logger.Error("an update could not be stored; the agent will offer it again", "agent", o.agent, "round", r, "err", err)
		c.forget(o.agent)
	default:
		u := o.update
		u.Inline = nil
		c.step(round.Stored{Agent: o.agent, Round: r, Update: u, Norm: norm})
	}
}

// check returns ‖v‖₂ of an update's vector, or why it is not taken.
func check(kind wire.Kind, payload []byte, most float64) (float64, wire.RefuseReason) {
	norm, err := 0.0, error(nil)
	if kind == wire.KindStatistics {
		norm, err = round.Norm[float64](payload)
	} else {
		norm, err = round.Norm[float32](payload)
	}
	switch {
	case errors.Is(err, wire.ErrNotFinite):
		return 0, wire.RefuseNotFinite
	case err != nil:
		return 0, wire.RefuseWrongSchema
	case kind == wire.KindTraining && most > 0 && norm > most:
		return 0, wire.RefuseNorm
	}
	return norm, 0
}
