package coordinator

import (
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// perform does what the machine asks for. It reports false if the coordinator
// stops before that is on disk.
func (c *Coordinator) perform(e round.Effect) bool {
	run, present := c.runID, c.present()
	switch e := e.(type) {
	case round.Report[round.CoordinatorFact]:
		c.cfg.Observer.ObserveRound(e.Fact)
	case round.Journal:
		return c.untilDone("save the state of the round", func() error { return c.disk.saveRecord(e.Record) }) == nil
	case round.WriteHistory:
		return c.untilDone("write a line of the history",
			func() error { return c.disk.writeHistory(e.Run, e.Outcome) }) == nil
	case round.Announce:
		return c.announce(e)
	case round.Invite:
		m := wire.Invitation{Agent: e.Agent, Announcement: c.publisher.digest,
			Left: uint32(max(e.Left, 0).Milliseconds()), Weight: e.Weight, Uploads: e.Uploads, Block: e.Block,
			Peers: e.Peers, Samples: e.Samples}
		c.tell(e.Agent, wire.TypeInvitation, run, present, m.Body())
	case round.Mesh:
		c.mesh(e)
	case round.Stand:
		m := wire.Standing{Announcement: c.publisher.digest, Place: e.Place}
		c.tell(e.Agent, wire.TypeStanding, run, present, m.Body())
	case round.Receive:
		c.offers[e.Agent] = &e.Offer
		c.receive(transfer.Offer{Agent: e.Agent, Boot: e.Boot, Manifest: e.Update.Payload, Inline: e.Update.Inline})
	case round.Accept:
		m := wire.Accepted{Update: e.Update}
		c.tell(e.Agent, wire.TypeAccepted, run, e.Round, m.Body())
	case round.Refuse:
		if o := c.offers[e.Agent]; o != nil && o.Update.Payload.Hash == e.Update {
			c.forget(e.Agent)
		}
		m := wire.Refused{Update: e.Update, Reason: e.Reason}
		c.tell(e.Agent, wire.TypeRefused, e.Run, e.Round, m.Body())
	case round.Fold:
		c.fold(e)
	case round.Discard:
		c.discard(e)
	}
	return true
}

// announce makes the announcement and what it names the retained messages.
func (c *Coordinator) announce(e round.Announce) bool {
	if e.Announcement.Phase == wire.PhaseOpen && c.spools[e.Round] == nil {
		if c.untilDone("open the round's spool", func() error {
			_, err := c.openSpoolOf(c.machine.Record())
			return err
		}) != nil {
			return false
		}
	}
	e.Announcement.Instance = c.instance
	sealed := c.signer.Seal(wire.TypeAnnouncement, c.runID, e.Round, e.Announcement.Body())
	order := wire.OrderOf(wire.Header{Root: wire.FirstRoot, Epoch: c.signer.Epoch, Run: c.runID, Round: e.Round},
		&e.Announcement)
	blobs := c.work.blobs(&e.Announcement)
	list, changed := c.publisher.plan(blobs)
	if changed && c.untilDone("save the list of published blobs",
		func() error { return c.disk.savePublished(list) }) != nil {
		return false
	}
	c.fence.made(spot{order, c.instance, sha256.Sum256(sealed[:wire.HeaderSize])})
	c.publisher.show(c.owner.Now(), sealed, blobs, list)
	return true
}

// discard ends a round's transfers and removes its spool.
func (c *Coordinator) discard(e round.Discard) {
	for _, agent := range slices.Sorted(maps.Keys(c.offers)) {
		c.forget(agent)
	}
	c.storedUpdate(nil) // nothing of that round waits for the disk any more
	if s := c.spools[e.Round]; s != nil {
		if err := s.Close(); err != nil {
			c.cfg.Logger.Warn("closing the spool", "round", e.Round, "err", err)
		}
		delete(c.spools, e.Round)
	}
	if err := c.disk.removeSpool(e.Round); err != nil {
		c.cfg.Logger.Warn("an old spool is left behind", "round", e.Round, "err", err)
	}
}
