package transfer

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// UpdateReceiver receives the uploads of all agents within a limit on memory and disk space. A transfer occupies its
// space until the host has stored the update. Further transfers wait in order of arrival. The total number of chunks
// that agents may send (outstanding credit) is limited too. An agent has one transfer at a time. After a complete
// update the agent's offers are ignored until DropAgent, because a late repeat of a manifest must not restart the
// transfer.
//
// A waiting transfer keeps its manifest in memory, which needs 32 bytes for each chunk of 60 KiB.
type UpdateReceiver struct {
	cfg                   ReceiverConfig
	transferByAgent       map[wire.AgentID]*incomingTransfer
	completeUpdateByAgent map[wire.AgentID]wire.Digest
	storingBytesByAgent   map[wire.AgentID]int
	agentsAwaitingRoom    []wire.AgentID                     // queue of agents whose transfers wait for space
	agentsAwaitingCredit  []wire.AgentID                     // queue of agents whose transfers have space but no credit
	leasedTransferByAgent map[wire.AgentID]*incomingTransfer // transfers that currently have a credit
	stats                 ReceiverStats
}

// incomingTransfer is an update that is being received. It waits for space, waits for its storage to open, waits for
// credit, or has a credit.
type incomingTransfer struct {
	agentBootEpoch   wire.Epoch
	manifest         wire.Manifest
	sealer           *wire.BlobSealer // decrypts the chunks; nil = they are not encrypted
	waitsForRoom     bool             // whether the agent is in UpdateReceiver.agentsAwaitingRoom
	reservedBytes    int              // reserved space in bytes; 0 while waiting for space
	storage          ChunkStorage     // storage of the chunks; nil until it is open
	isStorageFailing bool             // whether the last chunk could not be stored
	// unsolicitedChunks is the number of leading chunks that the agent sends without a credit. It is 0 after the first
	// credit.
	unsolicitedChunks int
	earlyChunks       []ChunkReceived // unsolicited chunks that arrived before the storage was open
	hasChunk          []bool
	missingChunks     int
	firstMissingChunk int // lower bound of the missing chunks: all chunks below this number are stored

	creditedChunks         []int // credited chunks that have not arrived yet, in ascending order
	creditGrantedAt        time.Time
	leaseEndsAt            time.Time // time at which the credit expires; each arriving chunk extends it
	creditWindowChunks     int       // maximum number of chunks in the next credit
	hasProgressSinceCredit bool      // whether a chunk has arrived since the last credit
	consecutiveEmptyLeases int       // number of consecutive leases during which no chunk arrived
}

// NewUpdateReceiver returns a receiver without transfers. It panics if cfg is invalid.
func NewUpdateReceiver(cfg ReceiverConfig) *UpdateReceiver {
	if err := cfg.Validate(); err != nil {
		panic("transfer: NewUpdateReceiver: " + err.Error())
	}
	return &UpdateReceiver{
		cfg: cfg, transferByAgent: map[wire.AgentID]*incomingTransfer{},
		completeUpdateByAgent: map[wire.AgentID]wire.Digest{}, storingBytesByAgent: map[wire.AgentID]int{},
		leasedTransferByAgent: map[wire.AgentID]*incomingTransfer{},
	}
}

// Stats returns the current state and counters.
func (r *UpdateReceiver) Stats() ReceiverStats {
	s := r.stats
	s.QueuedTransfers = len(r.agentsAwaitingRoom)
	s.ActiveTransfers = len(r.transferByAgent) - len(r.agentsAwaitingRoom)
	s.StoringUpdates = len(r.storingBytesByAgent)
	return s
}

// Step processes one event and returns the effects to perform, in order.
func (r *UpdateReceiver) Step(now time.Time, ev ReceiveEvent) []ReceiveEffect {
	var effects []ReceiveEffect
	switch ev := ev.(type) {
	case UpdateOffer:
		effects = r.handleUpdateOffer(now, ev)
	case ChunkReceived:
		effects = r.handleChunk(now, ev)
	case StorageOpened:
		effects = r.handleStorageOpened(now, ev)
	case UpdateReleased:
		r.stats.BufferedBytes -= r.storingBytesByAgent[ev.Agent]
		delete(r.storingBytesByAgent, ev.Agent)
	case DropAgent:
		r.removeTransfer(ev.Agent)
		delete(r.completeUpdateByAgent, ev.Agent)
	case Tick:
		r.expireLeases(now)
	}
	effects = append(effects, r.admitQueuedTransfers()...)
	return append(effects, r.grantWaitingCredits(now)...)
}

func (r *UpdateReceiver) handleUpdateOffer(now time.Time, ev UpdateOffer) []ReceiveEffect {
	m := ev.Manifest
	done, ok := r.completeUpdateByAgent[ev.Agent]
	if _, busy := r.storingBytesByAgent[ev.Agent]; busy || ok && done == m.Hash {
		r.stats.IgnoredOffers++
		return nil
	}
	t := r.transferByAgent[ev.Agent]
	if t != nil && ev.AgentBootEpoch < t.agentBootEpoch {
		r.stats.StaleOffers++
		return nil
	}
	switch {
	case int64(m.BlobLength) > int64(r.cfg.MaxUpdateBytes):
		return r.refuseUpdate(ev.Agent, m.Hash, wire.RefuseTooLarge)
	case m.BlobLength == 0 || len(m.ChunkDigests) != wire.ChunkCount(int(m.BlobLength)):
		return r.refuseUpdate(ev.Agent, m.Hash, wire.RefuseMalformed)
	case t != nil && isSameBlob(t.manifest, m):
		return r.handleRepeatedOffer(now, ev, t)
	}
	if t != nil {
		r.stats.ReplacedTransfers++
		r.removeTransfer(ev.Agent)
	}
	if len(ev.InlinePayload) > 0 {
		return r.handleInlineOffer(ev)
	}
	r.transferByAgent[ev.Agent] = &incomingTransfer{agentBootEpoch: ev.AgentBootEpoch, manifest: m, sealer: ev.Sealer,
		missingChunks:      len(m.ChunkDigests),
		creditWindowChunks: r.cfg.WindowChunks, waitsForRoom: true, unsolicitedChunks: min(ev.UnsolicitedChunks,
			len(m.ChunkDigests))}
	r.agentsAwaitingRoom = append(r.agentsAwaitingRoom, ev.Agent)
	return nil
}

// isSameBlob reports whether two manifests describe the same blob with the same chunks.
func isSameBlob(a, b wire.Manifest) bool {
	return a.Hash == b.Hash && a.BlobLength == b.BlobLength && slices.Equal(a.ChunkDigests, b.ChunkDigests)
}

// handleRepeatedOffer handles a repeated offer of an unfinished transfer. If the agent has not restarted, it repeats
// the credit, which may have been lost. If the agent has restarted, the credit ends but the received chunks are kept.
func (r *UpdateReceiver) handleRepeatedOffer(now time.Time, ev UpdateOffer, t *incomingTransfer) []ReceiveEffect {
	t.sealer = ev.Sealer
	switch {
	case t.agentBootEpoch != ev.AgentBootEpoch:
		t.agentBootEpoch = ev.AgentBootEpoch
		if len(t.creditedChunks) > 0 {
			r.endLease(ev.Agent, t)
			r.agentsAwaitingCredit = append(r.agentsAwaitingCredit, ev.Agent)
		}
	case len(t.creditedChunks) > 0 && t.leaseEndsAt.Sub(now) >= time.Millisecond:
		return []ReceiveEffect{r.buildCreditGrant(now, ev.Agent, t, t.creditedChunks)}
	}
	return nil
}

// handleInlineOffer handles an update whose payload is inside its manifest. If no space is left, the offer is ignored
// and the agent repeats it, because even a queued update would need the space.
func (r *UpdateReceiver) handleInlineOffer(ev UpdateOffer) []ReceiveEffect {
	m := ev.Manifest
	if len(ev.InlinePayload) != int(m.BlobLength) || wire.BlobDigest(ev.InlinePayload) != m.Hash {
		return r.refuseUpdate(ev.Agent, m.Hash, wire.RefuseBadHash)
	}
	if int(m.BlobLength) > r.cfg.MaxBufferedBytes-r.stats.BufferedBytes {
		r.stats.IgnoredOffers++
		return nil
	}
	r.stats.BufferedBytes += int(m.BlobLength)
	return r.handUpdateToHost(ev.Agent, m, int(m.BlobLength), inlineBlobStorage(ev.InlinePayload))
}

// handleStorageOpened queues the transfer for a credit (permission to send) for the chunks that are not in the storage.
func (r *UpdateReceiver) handleStorageOpened(now time.Time, ev StorageOpened) []ReceiveEffect {
	t := r.transferByAgent[ev.Agent]
	if t == nil || t.reservedBytes == 0 || t.storage != nil || t.manifest.Hash != ev.BlobDigest {
		closeUnusedStorage(ev.Storage)
		return nil
	}
	if ev.Err != nil {
		r.stats.StorageFailures++
		r.removeTransfer(ev.Agent)
		return []ReceiveEffect{StorageFailed{ev.Agent, ev.Err}}
	}
	t.storage = ev.Storage
	t.hasChunk = make([]bool, len(t.manifest.ChunkDigests))
	for k := range t.hasChunk {
		if t.hasChunk[k] = t.storage.HasChunk(k); t.hasChunk[k] {
			t.missingChunks--
			r.stats.ResumedChunks++
		}
	}
	if t.missingChunks == 0 {
		return r.completeTransfer(ev.Agent, t)
	}
	r.agentsAwaitingCredit = append(r.agentsAwaitingCredit, ev.Agent)
	var effects []ReceiveEffect
	early := t.earlyChunks
	t.earlyChunks = nil
	for _, c := range early {
		effects = append(effects, r.handleChunk(now, c)...)
	}
	return effects
}

func (r *UpdateReceiver) handleChunk(now time.Time, ev ChunkReceived) []ReceiveEffect {
	t := r.transferByAgent[ev.Agent]
	switch {
	case t == nil || ev.UploadID != UploadID(t.manifest.Hash), t.storage == nil &&
		len(t.earlyChunks) >= t.unsolicitedChunks:
		r.stats.UnknownChunks++
		return nil
	case t.storage == nil:
		t.earlyChunks = append(t.earlyChunks, ev)
		return nil
	}
	k, payload, err := wire.DecodeChunkMessage(ev.Payload, t.manifest.Hash)
	switch {
	case err != nil, k >= len(t.hasChunk):
		r.stats.CorruptChunks++
		return nil
	case t.hasChunk[k]:
		r.stats.DuplicateChunks++
		return nil
	}
	payload, err = openSealedChunk(t.sealer, k, payload)
	switch {
	case err != nil, len(payload) != t.manifest.ChunkLen(k), sha256.Sum256(payload) != t.manifest.ChunkDigests[k]:
		r.stats.CorruptChunks++
		return nil
	}
	if err := t.storage.PutChunk(k, payload); err != nil {
		r.stats.StorageFailures++
		if t.isStorageFailing {
			return nil
		}
		t.isStorageFailing = true
		return []ReceiveEffect{StorageFailed{ev.Agent, err}}
	}
	t.isStorageFailing = false
	t.hasChunk[k] = true
	t.missingChunks--
	r.stats.StoredChunks++
	t.hasProgressSinceCredit, t.consecutiveEmptyLeases = true, 0
	t.leaseEndsAt = now.Add(r.cfg.LeaseDuration)
	r.takeChunkOffCredit(now, ev.Agent, t, k)
	if t.missingChunks > 0 {
		return nil
	}
	return r.completeTransfer(ev.Agent, t)
}

func (r *UpdateReceiver) completeTransfer(agent wire.AgentID, t *incomingTransfer) []ReceiveEffect {
	room, data := t.reservedBytes, t.storage
	t.reservedBytes, t.storage = 0, nil
	r.removeTransfer(agent)
	return r.handUpdateToHost(agent, t.manifest, room, data)
}

// handUpdateToHost passes a complete update to the host. Its space stays reserved until UpdateReleased.
func (r *UpdateReceiver) handUpdateToHost(agent wire.AgentID, m wire.Manifest, room int,
	data ChunkStorage) []ReceiveEffect {
	r.stats.CompletedUpdates++
	r.completeUpdateByAgent[agent], r.storingBytesByAgent[agent] = m.Hash, room
	return []ReceiveEffect{UpdateComplete{agent, m.Hash, data}}
}

func (r *UpdateReceiver) refuseUpdate(agent wire.AgentID, update wire.Digest,
	reason wire.UpdateRefusalReason) []ReceiveEffect {
	r.stats.RefusedUpdates++
	return []ReceiveEffect{RefuseUpdate{agent, update, reason}}
}

// removeTransfer ends an agent's transfer and releases its resources. It does nothing if the agent has no transfer.
func (r *UpdateReceiver) removeTransfer(agent wire.AgentID) {
	t := r.transferByAgent[agent]
	if t == nil {
		return
	}
	r.returnCredit(t, t.creditedChunks)
	closeUnusedStorage(t.storage)
	r.stats.BufferedBytes -= t.reservedBytes
	delete(r.transferByAgent, agent)
	delete(r.leasedTransferByAgent, agent)
	is := func(id wire.AgentID) bool { return id == agent }
	if t.waitsForRoom {
		r.agentsAwaitingRoom = slices.DeleteFunc(r.agentsAwaitingRoom, is)
	}
	r.agentsAwaitingCredit = slices.DeleteFunc(r.agentsAwaitingCredit, is)
}
