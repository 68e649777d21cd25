package transfer

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// minCreditWindowChunks is the minimum number of chunks that a credit permits an agent to send (window). The window is
// halved if a lease ends with missing chunks, because a queue has overflowed, or if a credit takes longer than a lease,
// because other agents wait. The window is doubled if all chunks arrive in time. Each chunk extends the lease, because
// on a slow link the other chunks are still in flight.
const minCreditWindowChunks = 4

// Deadline returns the time at which the first lease of a credit expires. It reports false if there are no leases.
func (r *UpdateReceiver) Deadline() (time.Time, bool) {
	var first time.Time
	for _, t := range r.leasedTransferByAgent {
		if first.IsZero() || t.leaseEndsAt.Before(first) {
			first = t.leaseEndsAt
		}
	}
	return first, !first.IsZero()
}

// admitQueuedTransfers reserves buffer space for the transfers at the head of the queue. It stops at the first transfer
// that does not fit, because smaller transfers could otherwise delay this transfer forever.
func (r *UpdateReceiver) admitQueuedTransfers() []ReceiveEffect {
	var effects []ReceiveEffect
	for len(r.agentsAwaitingRoom) > 0 {
		agent := r.agentsAwaitingRoom[0]
		t := r.transferByAgent[agent]
		if int(t.manifest.BlobLength) > r.cfg.MaxBufferedBytes-r.stats.BufferedBytes {
			break
		}
		t.reservedBytes = int(t.manifest.BlobLength)
		r.stats.BufferedBytes += t.reservedBytes
		t.waitsForRoom = false
		r.agentsAwaitingRoom = r.agentsAwaitingRoom[1:]
		effects = append(effects, OpenStorage{agent, t.manifest})
	}
	return effects
}

// grantWaitingCredits grants credits to the transfers in the queue, in order. The first transfer waits until its whole
// window fits, because each credit costs a signature.
func (r *UpdateReceiver) grantWaitingCredits(now time.Time) []ReceiveEffect {
	var effects []ReceiveEffect
	for len(r.agentsAwaitingCredit) > 0 {
		agent := r.agentsAwaitingCredit[0]
		t := r.transferByAgent[agent]
		lent := t.nextMissingChunks()
		if r.stats.OutstandingChunks+len(lent) > r.cfg.MaxOutstandingChunks ||
			r.stats.OutstandingBytes+t.chunkMessageBytes(lent) > r.cfg.MaxOutstandingBytes {
			break
		}
		r.stats.OutstandingChunks += len(lent)
		r.stats.OutstandingBytes += t.chunkMessageBytes(lent)
		r.agentsAwaitingCredit = slices.Delete(r.agentsAwaitingCredit, 0, 1)
		t.creditedChunks, t.creditGrantedAt, t.leaseEndsAt, t.hasProgressSinceCredit = lent, now,
			now.Add(r.cfg.LeaseDuration), false
		r.leasedTransferByAgent[agent] = t
		ahead, _ := slices.BinarySearch(lent, t.unsolicitedChunks)
		if t.unsolicitedChunks = 0; ahead < len(lent) {
			effects = append(effects, r.buildCreditGrant(now, agent, t, lent[ahead:]))
		}
	}
	return effects
}

// nextMissingChunks returns the numbers of the first missing chunks, at most as many as a credit may contain.
func (t *incomingTransfer) nextMissingChunks() []int {
	for t.hasChunk[t.firstMissingChunk] {
		t.firstMissingChunk++
	}
	lent := make([]int, 0, min(t.creditWindowChunks, t.missingChunks))
	for k := t.firstMissingChunk; len(lent) < cap(lent); k++ {
		if !t.hasChunk[k] {
			lent = append(lent, k)
		}
	}
	return lent
}

// chunkMessageBytes returns the total size in bytes of the messages of the given chunks.
func (t *incomingTransfer) chunkMessageBytes(ks []int) int {
	n := 0
	for _, k := range ks {
		n += wire.ChunkHeaderSize + t.manifest.ChunkLen(k) + wire.SealOverhead
	}
	return n
}

// buildCreditGrant returns a credit for the given chunks that expires with the agent's current lease.
func (r *UpdateReceiver) buildCreditGrant(now time.Time, agent wire.AgentID, t *incomingTransfer,
	lent []int) GrantCredit {
	r.stats.SentCredits++
	c := wire.ChunkCredit{Update: t.manifest.Hash, LeaseMillis: uint32(t.leaseEndsAt.Sub(now).Milliseconds())}
	for _, k := range lent {
		if n := len(c.Chunks); n > 0 && int(c.Chunks[n-1].Last)+1 == k {
			c.Chunks[n-1].Last = uint32(k)
		} else {
			c.Chunks = append(c.Chunks, wire.ChunkRange{First: uint32(k), Last: uint32(k)})
		}
	}
	return GrantCredit{agent, c}
}

// takeChunkOffCredit removes chunk k from the agent's credit, unless the credit has already expired. When all credited
// chunks have arrived, the transfer is queued for the next credit.
func (r *UpdateReceiver) takeChunkOffCredit(now time.Time, agent wire.AgentID, t *incomingTransfer, k int) {
	i := slices.Index(t.creditedChunks, k)
	if i < 0 {
		return
	}
	r.returnCredit(t, t.creditedChunks[i:i+1])
	t.creditedChunks = slices.Delete(t.creditedChunks, i, i+1)
	if len(t.creditedChunks) > 0 {
		return
	}
	delete(r.leasedTransferByAgent, agent)
	if now.Sub(t.creditGrantedAt) > r.cfg.LeaseDuration {
		t.creditWindowChunks = r.halvedCreditWindow(t.creditWindowChunks)
	} else {
		t.creditWindowChunks = min(2*t.creditWindowChunks, r.cfg.WindowChunks)
	}
	r.agentsAwaitingCredit = append(r.agentsAwaitingCredit, agent)
}

// expireLeases ends the expired leases of credits. It drops transfers with too many consecutive leases in which no
// chunk arrived. Chunks that arrive after the end of their lease are still stored.
func (r *UpdateReceiver) expireLeases(now time.Time) {
	if first, ok := r.Deadline(); !ok || now.Before(first) {
		return
	}
	var over []wire.AgentID
	for agent, t := range r.leasedTransferByAgent {
		if !now.Before(t.leaseEndsAt) {
			over = append(over, agent)
		}
	}
	slices.Sort(over)
	for _, agent := range over {
		t := r.transferByAgent[agent]
		r.stats.ExpiredLeases++
		t.creditWindowChunks = r.halvedCreditWindow(t.creditWindowChunks)
		r.endLease(agent, t)
		if t.consecutiveEmptyLeases >= r.cfg.MaxEmptyLeases {
			r.stats.DroppedTransfers++
			r.removeTransfer(agent)
			continue
		}
		r.agentsAwaitingCredit = append(r.agentsAwaitingCredit, agent)
	}
}

func (r *UpdateReceiver) halvedCreditWindow(window int) int {
	return max(window/2, min(minCreditWindowChunks, r.cfg.WindowChunks))
}

func (r *UpdateReceiver) endLease(agent wire.AgentID, t *incomingTransfer) {
	if !t.hasProgressSinceCredit {
		t.consecutiveEmptyLeases++
	}
	r.returnCredit(t, t.creditedChunks)
	t.creditedChunks = nil
	delete(r.leasedTransferByAgent, agent)
}

// returnCredit subtracts the given chunks from the outstanding chunks and bytes.
func (r *UpdateReceiver) returnCredit(t *incomingTransfer, ks []int) {
	r.stats.OutstandingChunks -= len(ks)
	r.stats.OutstandingBytes -= t.chunkMessageBytes(ks)
}
