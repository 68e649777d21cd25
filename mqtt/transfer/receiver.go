package transfer

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// Receiver takes the uploads of all agents. The room that they take, in memory or in files, is bounded. A transfer has
// its room until the host has stored the update; the others wait first come, first served. The number of chunks that
// are lent and have not come is bounded too. An agent has one transfer at a time. After a complete update its offers
// are ignored until Drop, so that a late repeat of a manifest does not begin the transfer again.
//
// A transfer that waits for room holds its manifest, 32 bytes for each chunk of 60 KiB.
type Receiver struct {
	cfg                   ReceiverConfig
	transfers             map[wire.AgentID]*incomingTransfer
	completeUpdateByAgent map[wire.AgentID]wire.Digest
	storingBytesByAgent   map[wire.AgentID]int               // bytes that the host stores
	agentsAwaitingRoom    []wire.AgentID                     // wait for room
	agentsAwaitingCredit  []wire.AgentID                     // have room, wait for credit
	leasedTransferByAgent map[wire.AgentID]*incomingTransfer // have a credit; at most as many as outstanding chunks
	stats                 ReceiverStats
}

// incomingTransfer is one update on its way. It is in Receiver.queued, or is being
// opened, or is in Receiver.idle, or has a credit.
type incomingTransfer struct {
	boot           wire.Epoch
	manifest       wire.Manifest
	seal           *wire.BlobSeal // of the chunks; nil = they are open
	waitsForRoom   bool           // is in Receiver.queued
	reservedBytes  int            // bytes taken, 0 while it waits for them
	data           Storage        // nil until it is open
	storageFailing bool           // the last chunk could not be stored
	// chunks, the first ones, that come without having been lent, until the first credit
	unsolicitedChunks int
	earlyChunks       []ChunkReceived // of these, what came before it was open
	have              []bool
	missing           int
	firstMissing      int // no chunk below is missing

	lentChunks          []int     // chunks of the credit that have not come, ascending
	granted             time.Time // when the credit was given
	leaseEndsAt         time.Time // end of the credit's lease, which each chunk renews
	windowChunks        int       // chunks of the next credit
	progressSinceCredit bool      // a chunk has come since the last credit
	emptyLeases         int       // leases in a row without a chunk
}

// NewReceiver returns a receiver without transfers. It panics if cfg is not valid.
func NewReceiver(cfg ReceiverConfig) *Receiver {
	if err := cfg.Validate(); err != nil {
		panic("transfer: NewReceiver: " + err.Error())
	}
	return &Receiver{
		cfg: cfg, transfers: map[wire.AgentID]*incomingTransfer{},
		completeUpdateByAgent: map[wire.AgentID]wire.Digest{}, storingBytesByAgent: map[wire.AgentID]int{},
		leasedTransferByAgent: map[wire.AgentID]*incomingTransfer{},
	}
}

// Stats returns where the receiver stands and the counts so far.
func (r *Receiver) Stats() ReceiverStats {
	s := r.stats
	s.Queued = len(r.agentsAwaitingRoom)
	s.ActiveTransfers = len(r.transfers) - len(r.agentsAwaitingRoom)
	s.StoringUpdates = len(r.storingBytesByAgent)
	return s
}

// Step takes one event and returns the effects to carry out, in order.
func (r *Receiver) Step(now time.Time, ev ReceiveEvent) []ReceiveEffect {
	var effects []ReceiveEffect
	switch ev := ev.(type) {
	case UpdateOffer:
		effects = r.offer(now, ev)
	case ChunkReceived:
		effects = r.chunk(now, ev)
	case StorageOpened:
		effects = r.handleStorageOpened(now, ev)
	case UpdateStored:
		r.stats.BufferedBytes -= r.storingBytesByAgent[ev.Agent]
		delete(r.storingBytesByAgent, ev.Agent)
	case DropAgent:
		r.remove(ev.Agent)
		delete(r.completeUpdateByAgent, ev.Agent)
	case Tick:
		r.expire(now)
	}
	effects = append(effects, r.admitQueuedTransfers()...)
	return append(effects, r.grantWaitingCredits(now)...)
}

func (r *Receiver) offer(now time.Time, ev UpdateOffer) []ReceiveEffect {
	m := ev.Manifest
	done, ok := r.completeUpdateByAgent[ev.Agent]
	if _, busy := r.storingBytesByAgent[ev.Agent]; busy || ok && done == m.Hash {
		r.stats.RepeatedOffers++ // the agent offers it again
		return nil
	}
	t := r.transfers[ev.Agent]
	if t != nil && ev.Boot < t.boot {
		r.stats.StaleOffers++
		return nil
	}
	switch {
	case int64(m.Length) > int64(r.cfg.MaxUpdate):
		return r.refuse(ev.Agent, m.Hash, wire.RefuseTooLarge)
	case m.Length == 0 || len(m.Chunks) != wire.ChunkCount(int(m.Length)):
		return r.refuse(ev.Agent, m.Hash, wire.RefuseMalformed)
	case t != nil && sameBlob(t.manifest, m):
		return r.repeatOffer(now, ev, t)
	}
	if t != nil {
		r.stats.ReplacedTransfers++
		r.remove(ev.Agent)
	}
	if len(ev.Inline) > 0 {
		return r.handleInlineOffer(ev)
	}
	r.transfers[ev.Agent] = &incomingTransfer{boot: ev.Boot, manifest: m, seal: ev.Seal, missing: len(m.Chunks),
		windowChunks: r.cfg.WindowChunks, waitsForRoom: true, unsolicitedChunks: min(ev.UnsolicitedChunks,
			len(m.Chunks))}
	r.agentsAwaitingRoom = append(r.agentsAwaitingRoom, ev.Agent)
	return nil
}

// sameBlob reports whether chunks that fit one manifest fit the other.
func sameBlob(a, b wire.Manifest) bool {
	return a.Hash == b.Hash && a.Length == b.Length && slices.Equal(a.Chunks, b.Chunks)
}

// repeatOffer answers a repeated offer of an unfinished transfer. From the same start of the agent it repeats the
// credit, which may have been lost. From a new start the credit has ended; the chunks that came stay.
func (r *Receiver) repeatOffer(now time.Time, ev UpdateOffer, t *incomingTransfer) []ReceiveEffect {
	t.seal = ev.Seal
	switch {
	case t.boot != ev.Boot:
		t.boot = ev.Boot
		if len(t.lentChunks) > 0 {
			r.endLease(ev.Agent, t)
			r.agentsAwaitingCredit = append(r.agentsAwaitingCredit, ev.Agent)
		}
	case len(t.lentChunks) > 0 && t.leaseEndsAt.Sub(now) >= time.Millisecond:
		return []ReceiveEffect{r.grant(now, ev.Agent, t, t.lentChunks)}
	}
	return nil
}

// handleInlineOffer takes an update that came in its manifest. If there is no room, the offer is ignored and the agent
// repeats it: an update in the queue would take the room.
func (r *Receiver) handleInlineOffer(ev UpdateOffer) []ReceiveEffect {
	m := ev.Manifest
	if len(ev.Inline) != int(m.Length) || wire.BlobDigest(ev.Inline) != m.Hash {
		return r.refuse(ev.Agent, m.Hash, wire.RefuseBadHash)
	}
	if int(m.Length) > r.cfg.MaxBufferedBytes-r.stats.BufferedBytes {
		r.stats.RepeatedOffers++
		return nil
	}
	r.stats.BufferedBytes += int(m.Length)
	return r.handUpdateToHost(ev.Agent, m, int(m.Length), inlineStorage(ev.Inline))
}

// handleStorageOpened begins to lend the chunks that the storage lacks.
func (r *Receiver) handleStorageOpened(now time.Time, ev StorageOpened) []ReceiveEffect {
	t := r.transfers[ev.Agent]
	if t == nil || t.reservedBytes == 0 || t.data != nil || t.manifest.Hash != ev.Blob {
		closeUnused(ev.Data)
		return nil
	}
	if ev.Err != nil { // the agent offers it again
		r.stats.StorageFailures++
		r.remove(ev.Agent)
		return []ReceiveEffect{StorageFailed{ev.Agent, ev.Err}}
	}
	t.data = ev.Data
	t.have = make([]bool, len(t.manifest.Chunks))
	for k := range t.have {
		if t.have[k] = t.data.Has(k); t.have[k] {
			t.missing--
			r.stats.ResumedChunks++
		}
	}
	if t.missing == 0 {
		return r.completeTransfer(ev.Agent, t)
	}
	r.agentsAwaitingCredit = append(r.agentsAwaitingCredit, ev.Agent)
	var effects []ReceiveEffect
	early := t.earlyChunks
	t.earlyChunks = nil
	for _, c := range early {
		effects = append(effects, r.chunk(now, c)...)
	}
	return effects
}

func (r *Receiver) chunk(now time.Time, ev ChunkReceived) []ReceiveEffect {
	t := r.transfers[ev.Agent]
	switch {
	case t == nil || ev.Transfer != UploadID(t.manifest.Hash), t.data == nil &&
		len(t.earlyChunks) >= t.unsolicitedChunks:
		r.stats.UnknownChunks++
		return nil
	case t.data == nil:
		t.earlyChunks = append(t.earlyChunks, ev)
		return nil
	}
	k, payload, err := wire.DecodeChunk(ev.Payload, t.manifest.Hash)
	switch {
	case err != nil, k >= len(t.have):
		r.stats.CorruptChunks++
		return nil
	case t.have[k]:
		r.stats.Duplicates++
		return nil
	}
	payload, err = openChunk(t.seal, k, payload)
	switch {
	case err != nil, len(payload) != t.manifest.ChunkLen(k), sha256.Sum256(payload) != t.manifest.Chunks[k]:
		r.stats.CorruptChunks++ // still lent: granted again when the lease ends
		return nil
	}
	if err := t.data.Put(k, payload); err != nil { // still lent, too
		r.stats.StorageFailures++
		if t.storageFailing {
			return nil
		}
		t.storageFailing = true
		return []ReceiveEffect{StorageFailed{ev.Agent, err}}
	}
	t.storageFailing = false
	t.have[k] = true
	t.missing--
	r.stats.StoredChunks++
	t.progressSinceCredit, t.emptyLeases = true, 0
	t.leaseEndsAt = now.Add(r.cfg.LeaseDuration)
	r.takeChunkOffCredit(now, ev.Agent, t, k)
	if t.missing > 0 {
		return nil
	}
	return r.completeTransfer(ev.Agent, t)
}

// completeTransfer ends a transfer that has all its chunks.
func (r *Receiver) completeTransfer(agent wire.AgentID, t *incomingTransfer) []ReceiveEffect {
	room, data := t.reservedBytes, t.data
	t.reservedBytes, t.data = 0, nil
	r.remove(agent)
	return r.handUpdateToHost(agent, t.manifest, room, data)
}

// handUpdateToHost hands an update to the host. Its room is taken until Stored.
func (r *Receiver) handUpdateToHost(agent wire.AgentID, m wire.Manifest, room int, data Storage) []ReceiveEffect {
	r.stats.Completed++
	r.completeUpdateByAgent[agent], r.storingBytesByAgent[agent] = m.Hash, room
	return []ReceiveEffect{UpdateComplete{agent, m.Hash, data}}
}

func (r *Receiver) refuse(agent wire.AgentID, update wire.Digest, reason wire.UpdateRefusalReason) []ReceiveEffect {
	r.stats.Refused++
	return []ReceiveEffect{RefuseUpdate{agent, update, reason}}
}

// remove ends an agent's transfer, if there is one, and frees what it holds.
func (r *Receiver) remove(agent wire.AgentID) {
	t := r.transfers[agent]
	if t == nil {
		return
	}
	r.returnCredit(t, t.lentChunks)
	closeUnused(t.data)
	r.stats.BufferedBytes -= t.reservedBytes
	delete(r.transfers, agent)
	delete(r.leasedTransferByAgent, agent)
	is := func(id wire.AgentID) bool { return id == agent }
	if t.waitsForRoom {
		r.agentsAwaitingRoom = slices.DeleteFunc(r.agentsAwaitingRoom, is)
	}
	r.agentsAwaitingCredit = slices.DeleteFunc(r.agentsAwaitingCredit, is)
}
