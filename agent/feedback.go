package agent

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// feedback is what the codec top_k has not sent of an agent's changes. It goes with the next update: of what is to be
// sent, x = Δ + e, the rest stays if the update is folded, all of it if the coordinator has not used it, and nothing if
// a rule has left it out or nobody knows. Neither accepted nor late says anything of that.
type feedback struct {
	run   wire.RunID
	round wire.RoundID // whose update was settled last
	basis wire.Digest  // see basisOf
	v     []float32    // e; nil = 0. Of an update whose fate is not known, x
	// update and sent are of that; sent is what was packed.
	update wire.Digest
	sent   []byte
}

// basisOf names what the elements of a change are: the schema, and the standardisation of the columns.
func basisOf(p *task.Problem[float32]) wire.Digest {
	schema := p.Schema(wire.KindTraining).Hash()
	b := schema[:]
	for _, column := range [][]float64{p.Task.Standardization.Mean, p.Task.Standardization.Scale} {
		for _, x := range column {
			b = le.AppendUint64(b, math.Float64bits(x))
		}
	}
	return sha256.Sum256(b)
}

// after is the residual that an update leaves which has this fate.
func (r *feedback) after(f wire.Fate) feedback {
	next := feedback{run: r.run, round: r.round, basis: r.basis}
	switch f {
	case wire.FateFolded:
		next.v = slices.Clone(r.v)
		for at := 0; at+8 <= len(r.sent); at += 8 { // what was sent is x itself there
			if i := int(le.Uint32(r.sent[at:])); i < len(next.v) {
				next.v[i] = 0
			}
		}
	case wire.FateAbandoned, wire.FateMissed:
		next.v = r.v
	}
	return next
}

func (r *feedback) norm() float64 { return math.Sqrt(round.AddSquares(0, r.v)) }

// errorFeedback keeps it. Blocks read it.
type errorFeedback struct {
	mu sync.Mutex
	feedback
	saved func() // what waits until it is on disk; nil if nothing does
}

// add makes of a change what is to be sent of it, if the codec keeps a residual: u.whole.
func (f *errorFeedback) add(u *update, p *task.Problem[float32], change []float32) []float32 {
	if _, ok := p.Task.Training.Codec.TopK(); !ok {
		return change
	}
	f.mu.Lock()
	e := f.feedback
	f.mu.Unlock()
	u.basis, u.whole = basisOf(p), slices.Clone(change)
	if e.run != u.run || e.basis != u.basis || len(e.v) != len(change) || !e.update.IsZero() {
		u.lost = len(e.v) > 0 // of another run or in other columns, or what became of it is not known: it is 0
		return u.whole
	}
	for j, x := range e.v {
		u.whole[j] = float32(change[j] + x)
		if y := u.whole[j]; y-y != 0 {
			return append(u.whole[:0], change...)
		}
	}
	return u.whole
}

// feedbackOf is what an update leaves whose fate is not known.
func feedbackOf(u *update) feedback {
	return feedback{run: u.run, round: u.round, basis: u.basis, v: u.whole, update: u.Payload.Hash, sent: u.payload}
}

// settledBefore reports whether it is known already what the update of a round has left.
func (f *errorFeedback) settledBefore(run wire.RunID, r wire.RoundID) bool {
	return f.run == run && f.round >= r && f.update.IsZero()
}

// settleFeedback takes what became of a round's update.
func (a *Agent) settleFeedback(run wire.RunID, r wire.RoundID, f wire.Fate) {
	left := a.unsent.feedback
	if u := a.ready; u != nil && u.whole != nil && u.round == r {
		left = feedbackOf(u)
	}
	if left.run == run && left.round == r && !left.update.IsZero() && !a.unsent.settledBefore(run, r) {
		a.keepFeedback(left.after(f), f == wire.FateUnknown)
	}
}

// leaveFeedback keeps what an update leaves that is released: if the coordinator has not said yet what became of it,
// and is asked, the update itself. One that is refused waits for the outcome too: it may be folded, and be refused as
// late when it is offered once more. But one that is refused for its length leaves nothing, for the next would be
// longer still, nor does one beside which another one is accepted. One that was never offered changes nothing.
func (a *Agent) leaveFeedback(u *update, refused wire.RefuseReason) {
	if u == nil || u.whole == nil || a.unsent.settledBefore(u.run, u.round) {
		return
	}
	switch left := feedbackOf(u); {
	case refused == wire.RefuseNorm, refused == wire.RefuseConflict:
		a.keepFeedback(left.after(wire.FateNorm), false)
	case refused != 0, a.asks == wire.Asked{Round: u.round, Update: u.Payload.Hash}:
		a.keepFeedback(left, false)
	case u.offered:
		a.keepFeedback(left.after(wire.FateUnknown), true)
	}
}

// keepFeedback has the next update begin with a residual, also after a restart.
func (a *Agent) keepFeedback(r feedback, lost bool) {
	a.unsent.mu.Lock()
	a.unsent.feedback = r
	a.unsent.mu.Unlock()
	_ = a.persist(saveTheUnsent, func() error { return saveFeedback(&a.cfg, &r) }, func() {
		if then := a.unsent.saved; then != nil {
			a.unsent.saved = nil
			then()
		}
	})
	if r.update.IsZero() {
		a.cfg.Observer.Observe(FeedbackKept{Round: r.round, Norm: r.norm(), Lost: lost})
	}
}

// feedbackUnsaved reports whether the residual on disk is an older one: then the update stays, which has it all.
func (a *Agent) feedbackUnsaved() bool {
	return slices.ContainsFunc(a.unwritten, func(w unwritten) bool { return w.what == saveTheUnsent })
}

// saveFeedback writes: run 8, round 8, basis 32, update 32, length of what was sent 4; what was sent; elements.
func saveFeedback(c *Config, r *feedback) error {
	b := le.AppendUint64(nil, uint64(r.run))
	b = le.AppendUint64(b, uint64(r.round))
	b = append(append(b, r.basis[:]...), r.update[:]...)
	b = append(le.AppendUint32(b, uint32(len(r.sent))), r.sent...)
	return c.Disk.SaveRecord(filepath.Join(c.Dir, unsentFile), slotVersion, wire.AppendVector(b, r.v))
}

func loadFeedback(c *Config) (r feedback, err error) {
	err = c.record(unsentFile, slotVersion, 2*wire.MaxBlob+wire.MaxMessage, func(b []byte) error {
		const head = 84
		if len(b) < head || int64(le.Uint32(b[head-4:])) > int64(len(b)-head) {
			return errors.New("too short")
		}
		sent := int(le.Uint32(b[head-4:]))
		r = feedback{run: wire.RunID(le.Uint64(b)), round: wire.RoundID(le.Uint64(b[8:])),
			basis: wire.Digest(b[16:]), update: wire.Digest(b[48:]), sent: b[head : head+sent]}
		r.v, err = vectorOf(b[head+sent:])
		return err
	})
	return r, err
}

// vectorOf reads elements; nil of none.
func vectorOf(b []byte) ([]float32, error) {
	if len(b) == 0 {
		return nil, nil
	}
	v := make([]float32, len(b)/4)
	return v, wire.DecodeVector(v, b)
}

// packUpdate packs a change, with what is kept of earlier ones, as the task asks.
func (q *ask) packUpdate(u *update, change []float32) error {
	p, word := q.p.problem, q.p.problem.Task.Training.Codec
	rng := task.Source(task.PackSeed(q.e.Announcement.Seed), q.e.Order.Round, task.Stream(q.a.cfg.ID))
	packed := codec.Of[float32](word).Append(nil, q.a.unsent.add(u, p, change), rng)
	err := u.take(packed, q.e.Announcement.Schema)
	u.Payload.Codec = word
	return err
}

// appendWhole appends what a file holds of an update beside its payload: nothing, or basis and elements.
func (u *update) appendWhole() []byte {
	if u.whole == nil {
		return nil
	}
	return wire.AppendVector(u.basis[:len(u.basis):len(u.basis)], u.whole)
}

// readWhole reads that.
func (u *update) readWhole(b []byte) (err error) {
	if len(b) == 0 {
		return nil
	}
	if len(b) <= len(u.basis) {
		return fmt.Errorf("%d bytes behind the payload", len(b))
	}
	u.basis = wire.Digest(b)
	u.whole, err = vectorOf(b[len(u.basis):])
	return err
}
