package transfer

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// minCreditWindowChunks is what a window shrinks to. A lease that ends with chunks
// missing halves it, for a queue has overflowed; so does a credit that takes
// longer than a lease, for others wait for their turn. A debt that is repaid in
// time doubles it. Each chunk that comes renews the lease: on a slow link the
// others are still under way, and would be sent twice if they were lent again.
const minCreditWindowChunks = 4

// Deadline returns when the first lease ends, if one lasts.
func (r *UpdateReceiver) Deadline() (time.Time, bool) {
	var first time.Time
	for _, t := range r.leasedTransferByAgent {
		if first.IsZero() || t.leaseEndsAt.Before(first) {
			first = t.leaseEndsAt
		}
	}
	return first, !first.IsZero()
}

// admitQueuedTransfers gives room to the transfers at the head of the queue. A transfer that does
// not fit is not overtaken, or smaller ones would keep it waiting.
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
		r.agentsAwaitingRoom = r.agentsAwaitingRoom[1:] // not slices.Delete, which moves all that wait
		effects = append(effects, OpenStorage{agent, t.manifest})
	}
	return effects
}

// grantWaitingCredits gives credit in the order in which transfers came to need it. The head
// waits until its whole window fits: credits of one chunk would cost a
// signature each.
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
		ahead, _ := slices.BinarySearch(lent, t.unsolicitedChunks) // are under way already
		if t.unsolicitedChunks = 0; ahead < len(lent) {
			effects = append(effects, r.buildCreditGrant(now, agent, t, lent[ahead:]))
		}
	}
	return effects
}

// nextMissingChunks returns the first missing chunks, as many as the window has.
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

// chunkMessageBytes returns what the messages of these chunks take, in bytes.
func (t *incomingTransfer) chunkMessageBytes(ks []int) int {
	n := 0
	for _, k := range ks {
		n += wire.ChunkHeaderSize + t.manifest.ChunkLen(k) + wire.SealOverhead
	}
	return n
}

// buildCreditGrant returns the credit of t as it stands now, for these chunks.
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

// takeChunkOffCredit takes chunk k off the credit; a chunk that comes after its lease may
// be on none. When the credit is used up the transfer asks for the next.
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

// expireLeases ends the leases that are over and drops the transfers that have been
// empty for too long. Late chunks of a lease that is over still count.
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

// endLease ends the lease of t.
func (r *UpdateReceiver) endLease(agent wire.AgentID, t *incomingTransfer) {
	if !t.hasProgressSinceCredit {
		t.consecutiveEmptyLeases++
	}
	r.returnCredit(t, t.creditedChunks)
	t.creditedChunks = nil
	delete(r.leasedTransferByAgent, agent)
}

// returnCredit takes chunks off what is outstanding.
func (r *UpdateReceiver) returnCredit(t *incomingTransfer, ks []int) {
	r.stats.OutstandingChunks -= len(ks)
	r.stats.OutstandingBytes -= t.chunkMessageBytes(ks)
}
