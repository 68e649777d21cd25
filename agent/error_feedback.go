package agent

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// feedbackResidual is what the codec top_k has not sent of an agent's changes. It goes with the next update: of what is
// to be sent, x = Δ + e, the rest stays if the update is folded, all of it if the coordinator has not used it, and
// nothing if a rule has left it out or nobody knows. Neither accepted nor late says anything of that.
type feedbackResidual struct {
	run        wire.RunID
	round      wire.RoundID // whose update was settled last
	schemaHash wire.Digest  // see schemaHashOf
	residual   []float32    // e; nil = 0. Of an update whose fate is not known, x
	// update and sent are of that; sent is what was packed.
	update       wire.Digest
	packedUpdate []byte
}

// schemaHashOf names what the elements of a change are: the schema, and the standardisation of the columns.
func schemaHashOf(p *task.CompiledTask[float32]) wire.Digest {
	schema := p.Schema(wire.KindTraining).Hash()
	b := schema[:]
	for _, column := range [][]float64{p.Task.Standardization.Mean, p.Task.Standardization.Scale} {
		for _, x := range column {
			b = littleEndian.AppendUint64(b, math.Float64bits(x))
		}
	}
	return sha256.Sum256(b)
}

// residualAfterFate is the residual that an update leaves which has this fate.
func (r *feedbackResidual) residualAfterFate(f wire.UpdateFate) feedbackResidual {
	next := feedbackResidual{run: r.run, round: r.round, schemaHash: r.schemaHash}
	switch f {
	case wire.FateFolded:
		next.residual = slices.Clone(r.residual)
		for at := 0; at+8 <= len(r.packedUpdate); at += 8 { // what was sent is x itself there
			if i := int(littleEndian.Uint32(r.packedUpdate[at:])); i < len(next.residual) {
				next.residual[i] = 0
			}
		}
	case wire.FateAbandoned, wire.FateMissed:
		next.residual = r.residual
	}
	return next
}

func (r *feedbackResidual) norm() float64 { return math.Sqrt(round.AddSquares(0, r.residual)) }

// errorFeedback keeps it. Blocks read it.
type errorFeedback struct {
	mu sync.Mutex
	feedbackResidual
	onSaved func() // what waits until it is on disk; nil if nothing does
}

// compensate makes of a change what is to be sent of it, if the codec keeps a residual: u.whole.
func (f *errorFeedback) compensate(u *trainedUpdate, p *task.CompiledTask[float32], change []float32) []float32 {
	if _, ok := p.Task.Training.Codec.TopKShare(); !ok {
		return change
	}
	f.mu.Lock()
	e := f.feedbackResidual
	f.mu.Unlock()
	u.schemaHash, u.uncompressed = schemaHashOf(p), slices.Clone(change)
	if e.run != u.run || e.schemaHash != u.schemaHash || len(e.residual) != len(change) || !e.update.IsZero() {
		// of another run or in other columns, or what became of it is not known: it is 0
		u.residualLost = len(e.residual) > 0
		return u.uncompressed
	}
	for j, x := range e.residual {
		u.uncompressed[j] = float32(change[j] + x)
		if y := u.uncompressed[j]; y-y != 0 {
			return append(u.uncompressed[:0], change...)
		}
	}
	return u.uncompressed
}

// pendingResidualOf returns the residual of an update whose fate is not known yet.
func pendingResidualOf(u *trainedUpdate) feedbackResidual {
	return feedbackResidual{run: u.run, round: u.round, schemaHash: u.schemaHash, residual: u.uncompressed,
		update: u.Payload.Hash, packedUpdate: u.payload}
}

// isFateApplied reports whether the fate of the update of round r was already applied to the residual.
func (f *errorFeedback) isFateApplied(run wire.RunID, r wire.RoundID) bool {
	return f.run == run && f.round >= r && f.update.IsZero()
}

// applyFateToFeedback replaces the pending residual of the update of round r with the residual after its fate f.
func (a *Agent) applyFateToFeedback(run wire.RunID, r wire.RoundID, f wire.UpdateFate) {
	left := a.errorFeedback.feedbackResidual
	if u := a.currentUpdate; u != nil && u.uncompressed != nil && u.round == r {
		left = pendingResidualOf(u)
	}
	if left.run == run && left.round == r && !left.update.IsZero() && !a.errorFeedback.isFateApplied(run, r) {
		a.setFeedbackResidual(left.residualAfterFate(f), f == wire.FateUnknown)
	}
}

// keepReleasedResidual sets the residual after the agent has released the update u. If the fate of u is still unknown,
// because the coordinator is asked for it or has refused u, the residual stays pending: a refused update may have been
// folded before it was offered again. An update that was refused for its length, or because another update of the agent
// was accepted, leaves no residual: the next update would otherwise be longer still. An update that was never sent does
// not change the residual.
func (a *Agent) keepReleasedResidual(u *trainedUpdate, refused wire.UpdateRefusalReason) {
	if u == nil || u.uncompressed == nil || a.errorFeedback.isFateApplied(u.run, u.round) {
		return
	}
	switch left := pendingResidualOf(u); {
	case refused == wire.RefuseNorm, refused == wire.RefuseConflict:
		a.setFeedbackResidual(left.residualAfterFate(wire.FateNorm), false)
	case refused != 0, a.outcomeQuery == wire.OutcomeRequest{Round: u.round, Update: u.Payload.Hash}:
		a.setFeedbackResidual(left, false)
	case u.possiblySent:
		a.setFeedbackResidual(left.residualAfterFate(wire.FateUnknown), true)
	}
}

// setFeedbackResidual has the next update begin with a residual, also after a restart.
func (a *Agent) setFeedbackResidual(r feedbackResidual, lost bool) {
	a.errorFeedback.mu.Lock()
	a.errorFeedback.feedbackResidual = r
	a.errorFeedback.mu.Unlock()
	_ = a.core.Writes.Run(state.Write{Purpose: feedbackWrite, Do: func() error { return saveFeedback(&a.cfg, &r) },
		Done: func() {
			if then := a.errorFeedback.onSaved; then != nil {
				a.errorFeedback.onSaved = nil
				then()
			}
		}})
	if r.update.IsZero() {
		a.cfg.Observer.Observe(ErrorFeedbackKept{Round: r.round, Norm: r.norm(), ResidualLost: lost})
	}
}

// feedbackUnsaved reports whether the residual on disk is an older one: then the update stays, which has it all.
func (a *Agent) feedbackUnsaved() bool {
	return a.core.Writes.IsFailing(feedbackWrite)
}

// saveFeedback writes: run 8, round 8, basis 32, update 32, length of what was sent 4; what was sent; elements.
func saveFeedback(c *Config, r *feedbackResidual) error {
	b := littleEndian.AppendUint64(nil, uint64(r.run))
	b = littleEndian.AppendUint64(b, uint64(r.round))
	b = append(append(b, r.schemaHash[:]...), r.update[:]...)
	b = append(littleEndian.AppendUint32(b, uint32(len(r.packedUpdate))), r.packedUpdate...)
	return c.state().Save(state.ErrorFeedback, wire.AppendVector(b, r.residual))
}

func loadFeedback(c *Config) (r feedbackResidual, err error) {
	err = c.state().Load(state.ErrorFeedback, func(b []byte) error {
		const head = 84
		if len(b) < head || int64(littleEndian.Uint32(b[head-4:])) > int64(len(b)-head) {
			return errors.New("too short")
		}
		sent := int(littleEndian.Uint32(b[head-4:]))
		r = feedbackResidual{run: wire.RunID(littleEndian.Uint64(b)), round: wire.RoundID(littleEndian.Uint64(b[8:])),
			schemaHash: wire.Digest(b[16:]), update: wire.Digest(b[48:]), packedUpdate: b[head : head+sent]}
		r.residual, err = vectorOf(b[head+sent:])
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
func (q *updateRequest) packUpdate(u *trainedUpdate, change []float32) error {
	p, word := q.p.CompiledTask, q.p.CompiledTask.Task.Training.Codec
	rng := task.AgentRand(task.CodecSeed(q.trainEffect.Announcement.Seed), q.trainEffect.Position.Round,
		task.AgentRandomKey(q.a.cfg.ID))
	packed := codec.ForName[float32](word).Append(nil, q.a.errorFeedback.compensate(u, p, change), rng)
	err := u.setPayload(packed, q.trainEffect.Announcement.Schema)
	u.Payload.Codec = word
	return err
}

// appendUncompressed appends what a file holds of an update beside its payload: nothing, or basis and elements.
func (u *trainedUpdate) appendUncompressed() []byte {
	if u.uncompressed == nil {
		return nil
	}
	return wire.AppendVector(u.schemaHash[:len(u.schemaHash):len(u.schemaHash)], u.uncompressed)
}

// readUncompressed reads that.
func (u *trainedUpdate) readUncompressed(b []byte) (err error) {
	if len(b) == 0 {
		return nil
	}
	if len(b) <= len(u.schemaHash) {
		return fmt.Errorf("%d bytes behind the payload", len(b))
	}
	u.schemaHash = wire.Digest(b)
	u.uncompressed, err = vectorOf(b[len(u.schemaHash):])
	return err
}

var (
	unsentResidualNorm = observe.Gauge("update_residual_norm",
		"Length of what the codec top_k has not sent of the updates of this "+
			"device, which goes with the next one; 0 with any other codec.")
	lostResiduals = observe.Counter("update_residuals_lost_total",
		"How often what the codec top_k had not sent was given up, "+
			"because nobody could say what became of the update, or it was of another run or other columns.")
)

// ErrorFeedbackKept: the residual has changed, which is what the codec has not sent of the updates up to a round. The
// next update contains it.
type ErrorFeedbackKept struct {
	Round        wire.RoundID
	Norm         float64 // ‖e‖₂
	ResidualLost bool    // it is 0: the fate of the last update is unknown, or the residual was of another run
}

// Describe implements observe.Event.
func (e ErrorFeedbackKept) Describe(d *observe.Description) {
	d.Set(unsentResidualNorm, e.Norm)
	if e.ResidualLost {
		d.Inc(lostResiduals)
		d.Log(observe.Info, "unsent residual of earlier updates dropped", "round", e.Round,
			"cause", "the fate of the last update is unknown, or it was of another run or other columns")
	}
}
