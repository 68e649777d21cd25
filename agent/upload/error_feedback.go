package upload

import (
	"crypto/sha256"
	"errors"
	"math"
	"slices"
	"sync"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// residual is the part of an agent's changes that the codec top_k has not sent. It is added to the next change Δ of the
// model, and the sum x = Δ + e is encoded, where e is the residual. The next residual depends on what happens to the
// encoded update: if the update was aggregated, the residual is x without the elements that were sent; if the
// coordinator did not use the update, the residual is x; if an aggregation rule left the update out, or the outcome is
// unknown, the residual is 0.
//
// Whether the update was accepted or late does not determine the next residual.
type residual struct {
	run        wire.RunID
	round      wire.RoundID // round of the last update included in the residual
	schemaHash wire.Digest  // hash returned by schemaHashOf for the update
	elements   []float32    // residual e, or the sum x while the outcome of the update is unknown; nil means zero
	// pendingUpdateHash is the hash of the last update while its outcome is unknown, and packedUpdate is the payload of
	// that update.
	pendingUpdateHash wire.Digest
	packedUpdate      []byte
}

// schemaHashOf returns a hash of the tensor schema and of the standardisation of the columns. Two changes of the model
// can be added only if their hashes are equal.
func schemaHashOf(p *task.CompiledTask[float32]) wire.Digest {
	schema := p.UpdateSchema(wire.KindTraining).Hash()
	b := schema[:]
	for _, column := range [][]float64{p.Task.Standardization.Mean, p.Task.Standardization.Scale} {
		for _, x := range column {
			b = littleEndian.AppendUint64(b, math.Float64bits(x))
		}
	}
	return sha256.Sum256(b)
}

// afterFate returns the residual after the coordinator has reported the outcome f of the last update.
func (r *residual) afterFate(f wire.UpdateFate) residual {
	next := residual{run: r.run, round: r.round, schemaHash: r.schemaHash}
	switch f {
	case wire.FateAggregated:
		next.elements = slices.Clone(r.elements)
		for at := 0; at+8 <= len(r.packedUpdate); at += 8 { // Remove the elements that the update contained.
			if i := int(littleEndian.Uint32(r.packedUpdate[at:])); i < len(next.elements) {
				next.elements[i] = 0
			}
		}
	case wire.FateRoundAbandoned, wire.FateMissedRoundEnd:
		next.elements = r.elements
	}
	return next
}

func (r *residual) norm() float64 { return math.Sqrt(learner.AddSquares(0, r.elements)) }

// errorFeedback contains the residual of an agent. The event loop replaces the residual, and training reads it
// concurrently.
type errorFeedback struct {
	mu              sync.Mutex
	residual        residual
	onResidualSaved func() // called once after the residual was saved; may be nil
}

// addResidualToChange adds the residual to a change of the model and stores the sum in u. It returns change itself if
// the codec keeps no residual.
func (f *errorFeedback) addResidualToChange(u *part.LocalUpdate, p *task.CompiledTask[float32],
	change []float32) []float32 {
	if _, ok := p.Task.Training.UpdateCodec.TopKShare(); !ok {
		return change
	}
	f.mu.Lock()
	e := f.residual
	f.mu.Unlock()
	u.SchemaHash, u.UncompressedChange = schemaHashOf(p), slices.Clone(change)
	if e.run != u.Run || e.schemaHash != u.SchemaHash || len(e.elements) != len(change) ||
		!e.pendingUpdateHash.IsZero() {
		// The residual does not fit this change, or the outcome of the last update is unknown.
		u.ResidualLost = len(e.elements) > 0
		return u.UncompressedChange
	}
	for j, x := range e.elements {
		u.UncompressedChange[j] = float32(change[j] + x)
		if y := u.UncompressedChange[j]; y-y != 0 {
			return append(u.UncompressedChange[:0], change...)
		}
	}
	return u.UncompressedChange
}

// newPendingResidual returns the residual after an update whose outcome is still unknown.
func newPendingResidual(u *part.LocalUpdate) residual {
	return residual{run: u.Run, round: u.Round, schemaHash: u.SchemaHash, elements: u.UncompressedChange,
		pendingUpdateHash: u.PayloadManifest.Hash, packedUpdate: u.PayloadBytes}
}

// isFateApplied reports whether the residual already includes the outcome of round r's update.
func (f *errorFeedback) isFateApplied(run wire.RunID, r wire.RoundID) bool {
	return f.residual.run == run && f.residual.round >= r && f.residual.pendingUpdateHash.IsZero()
}

// applyFateToResidual updates the residual after the coordinator has reported the outcome f of round r's update.
func (p *UpdateUploader) applyFateToResidual(run wire.RunID, r wire.RoundID, f wire.UpdateFate) {
	left := p.feedback.residual
	if u := p.current; u != nil && u.UncompressedChange != nil && u.Round == r {
		left = newPendingResidual(u)
	}
	if left.run == run && left.round == r && !left.pendingUpdateHash.IsZero() && !p.feedback.isFateApplied(run, r) {
		p.setResidual(left.afterFate(f), f == wire.FateRoundForgotten)
	}
}

// keepReleasedResidual sets the residual after the agent has released the update u. It keeps the residual unchanged if
// u was never sent. The residual stays pending while the outcome of u is unknown. It is discarded if u was refused for
// its norm or a conflict, because the next update would have an even larger norm.
func (p *UpdateUploader) keepReleasedResidual(u *part.LocalUpdate, refused wire.UpdateRefusalReason) {
	if u.UncompressedChange == nil || p.feedback.isFateApplied(u.Run, u.Round) {
		return
	}
	switch left := newPendingResidual(u); {
	case refused == wire.RefuseNormTooLarge, refused == wire.RefuseConflict:
		p.setResidual(left.afterFate(wire.FateDominantNorm), false)
	case refused != 0, p.fateRequest == wire.UpdateFateRequest{Round: u.Round, Update: u.PayloadManifest.Hash}:
		p.setResidual(left, false)
	case p.mayHaveBeenSent:
		p.setResidual(left.afterFate(wire.FateRoundForgotten), true)
	}
}

// setResidual stores a new residual in memory and on disk. The residual is added to the next update.
func (p *UpdateUploader) setResidual(r residual, lost bool) {
	p.feedback.mu.Lock()
	p.feedback.residual = r
	p.feedback.mu.Unlock()
	_ = p.core.WriteRetrier.RunWrite(state.RetriedWrite{Purpose: residualWrite, WriteFile: func() error {
		return saveResidual(p.core.StateFolder,
			&r)
	},
		OnSuccess: func() {
			if then := p.feedback.onResidualSaved; then != nil {
				p.feedback.onResidualSaved = nil
				then()
			}
		}})
	if r.pendingUpdateHash.IsZero() {
		p.core.Observer.Observe(ResidualChanged{Round: r.round, Norm: r.norm(), ResidualLost: lost})
	}
}

// saveResidual saves a residual. The format is run (8 bytes), round (8), schema hash (32), update hash (32), payload
// length (4), payload and elements.
func saveResidual(folder state.Folder, r *residual) error {
	b := littleEndian.AppendUint64(nil, uint64(r.run))
	b = littleEndian.AppendUint64(b, uint64(r.round))
	b = append(append(b, r.schemaHash[:]...), r.pendingUpdateHash[:]...)
	b = append(littleEndian.AppendUint32(b, uint32(len(r.packedUpdate))), r.packedUpdate...)
	return folder.SaveFile(state.ErrorFeedback, wire.AppendVector(b, r.elements))
}

func loadResidual(folder state.Folder) (r residual, err error) {
	err = folder.LoadFile(state.ErrorFeedback, func(b []byte) error {
		const head = 84
		if len(b) < head || int64(littleEndian.Uint32(b[head-4:])) > int64(len(b)-head) {
			return errors.New("the file is too short")
		}
		sent := int(littleEndian.Uint32(b[head-4:]))
		r = residual{run: wire.RunID(littleEndian.Uint64(b)), round: wire.RoundID(littleEndian.Uint64(b[8:])),
			schemaHash: wire.Digest(b[16:]), pendingUpdateHash: wire.Digest(b[48:]), packedUpdate: b[head : head+sent]}
		r.elements, err = decodeVector(b[head+sent:])
		return err
	})
	return r, err
}

// decodeVector returns the elements of an encoded vector, or nil if it is empty.
func decodeVector(b []byte) ([]float32, error) {
	if len(b) == 0 {
		return nil, nil
	}
	v := make([]float32, len(b)/4)
	return v, wire.DecodeVector(v, b)
}

var (
	unsentResidualNorm = observe.Gauge("update_residual_norm",
		"Euclidean norm of the unsent part of the updates (error feedback of the codec top_k). Always 0 with other "+
			"codecs.")
	lostResiduals = observe.Counter("update_residuals_lost_total",
		"Unsent parts of earlier updates that were discarded, because the result of the last update is unknown or "+
			"the run or columns have changed.")
)

// ResidualChanged reports a change of the residual, which is the part of earlier updates that the codec has not sent.
// The next update includes the residual.
type ResidualChanged struct {
	Round wire.RoundID
	Norm  float64 // Euclidean norm ‖e‖₂ of the residual e
	// whether the residual was discarded, because the outcome of the last update is unknown or the run has changed
	ResidualLost bool
}

// Describe implements observe.Event.
func (e ResidualChanged) Describe(d *observe.EventDescription) {
	d.SetGauge(unsentResidualNorm, e.Norm)
	if e.ResidualLost {
		d.IncCounter(lostResiduals)
		d.Log(observe.Info, "discarded the unsent part of earlier updates", "round", e.Round,
			"cause", "the result of the last update is unknown, or the run or the columns have changed")
	}
}
