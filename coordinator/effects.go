package coordinator

import (
	"crypto/sha256"
	"maps"
	"slices"
	"time"

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
		return c.journal(e.Record)
	case round.WriteHistory:
		c.record("write a line of the history", func() error { return c.disk.writeHistory(e) })
	case round.Announce:
		return c.announce(e)
	case round.Invite:
		m := wire.Invitation{Agent: e.Agent, Announcement: c.publisher.digest,
			Left: uint32(max(e.Left, 0).Milliseconds()), Weight: e.Weight, Uploads: e.Uploads, Block: e.Block,
			Peers: e.Peers, Ended: e.Ended, Samples: e.Samples, Attestation: c.wordFor(e.Agent)}
		c.tell(e.Agent, wire.TypeInvitation, run, present, m.Body())
	case round.Mesh:
		c.mesh(e)
	case round.MeshAhead:
		c.meshAhead(e)
	case round.Stand:
		m := wire.Standing{Announcement: c.publisher.digest, Place: e.Place, Samples: e.Samples}
		c.tell(e.Agent, wire.TypeStanding, run, present, m.Body())
	case round.Receive:
		c.offers[e.Agent] = &e.Offer
		c.receive(transfer.Offer{Agent: e.Agent, Boot: e.Boot, Manifest: e.Update.Payload, Inline: e.Update.Inline,
			Seal: e.Seal, Ahead: int(min(e.Update.Ahead, c.credit))})
	case round.Accept:
		m := wire.Accepted{Update: e.Update}
		c.tell(e.Agent, wire.TypeAccepted, run, e.Round, m.Body())
	case round.Refuse:
		if o := c.offers[e.Agent]; o != nil && o.Update.Payload.Hash == e.Update {
			c.forget(e.Agent)
		}
		m := wire.Refused{Update: e.Update, Reason: e.Reason}
		c.tell(e.Agent, wire.TypeRefused, e.Run, e.Round, m.Body())
	case round.Settle:
		m := wire.UpdateSettled{Update: e.Update, Fate: e.Fate}
		c.tell(e.Agent, wire.TypeSettled, run, e.Round, m.Body())
	case round.Fold:
		c.fold(e)
	case round.Evaluate:
		c.evaluated(e)
	case round.Discard:
		c.discard(e)
	}
	return true
}

// announce makes the announcement and what it names the retained messages.
func (c *Coordinator) announce(e round.Announce) bool {
	if e.Announcement.Phase == wire.PhaseOpen && c.spools[e.Round] == nil {
		if c.untilDone("open the round's spool", func() error { return c.openSpool(c.machine.Record()) }) != nil {
			return false
		}
	}
	if err := c.renewSeals(e.Round); err != nil {
		return false
	}
	c.form = c.work.form()
	e.Announcement.Seals = c.seals.announced()
	e.Announcement.Base = c.lean(e.Announcement.Base)
	blobs := c.blobsOf(&round.Plan{Kind: e.Announcement.Kind, Task: e.Announcement.Task, Base: e.Announcement.Base})
	e.Announcement.Instance, c.credit = c.instance, e.Announcement.Credit
	e.Announcement.Outcome = c.outcome.refer(inlineOutcome)
	resealed := c.seal(&e.Announcement, blobs)
	c.issued = max(c.issued, uint64(max(c.owner.Now().Unix(), 0)))
	e.Announcement.Issued = c.issued
	c.signer.SetRoot(c.cfg.root())
	order := wire.OrderOf(wire.Header{Root: c.signer.Root(), Epoch: c.signer.Epoch, Run: c.runID, Round: e.Round},
		&e.Announcement)
	e.Announcement.Selection = c.selection(order, e.Drawn)
	sealed := c.signer.Seal(wire.TypeAnnouncement, c.runID, e.Round, e.Announcement.Body())
	c.announcementGuard.made(position{order, c.instance, sha256.Sum256(sealed[:wire.HeaderSize])})
	c.publisher.show(c.owner.Now(), sealed, blobs, resealed)
	return true
}

// selection names those that are drawn, each to itself only. One whose key has no X25519 form is invited.
func (c *Coordinator) selection(o wire.Order, drawn []round.Drawn) wire.Selection {
	selected := make([]wire.Selected, 0, len(drawn))
	for _, d := range drawn {
		key, known := c.keys[d.Agent]
		if !known {
			var err error
			if key, err = wire.NewSelectionKey(c.cfg.Key, c.keyOf(d.Agent)); err != nil {
				c.cfg.Logger.Debug("an agent is not named in the announcement", "agent", d.Agent, "err", err)
				continue
			}
			c.keys[d.Agent] = key
		}
		selected = append(selected, wire.Selected{Key: key, Weight: d.Weight})
	}
	return wire.NewSelection(o, c.instance, selected)
}

// announced goes on when the connection has taken the present announcement.
func (c *Coordinator) announced(now time.Time) {
	c.announcementGuard.handed(now)
	c.giveKeys()
	o := c.announcementGuard.shown.order
	c.step(round.Announced{Round: o.Round, Attempt: o.Attempt, Phase: o.Phase})
}

// discard ends a round's transfers and has its spool removed.
func (c *Coordinator) discard(e round.Discard) {
	for _, agent := range slices.Sorted(maps.Keys(c.offers)) {
		c.forget(agent)
	}
	c.storedUpdate(nil) // nothing of that round waits for the disk any more
	c.removeSpool(e.Round, c.spools[e.Round])
	delete(c.spools, e.Round)
}
