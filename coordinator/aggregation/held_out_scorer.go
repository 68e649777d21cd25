package aggregation

import (
	"fmt"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// heldOutScorer scores models on held-out data.
type heldOutScorer struct {
	compiledTask *task.CompiledTask[float32]
	rows         data.QueriedRows
	rowSnapshot  data.RowSnapshot
}

// openHeldOutScorer returns a scorer that has read the held-out data from source.
func openHeldOutScorer(source data.Source, p *task.CompiledTask[float32]) (*heldOutScorer, error) {
	h := &heldOutScorer{compiledTask: p, rows: source.OpenRows(data.RowQuery{Features: p.Task.Features,
		Target: p.Task.TargetColumn,
		Recipe: p.RowRecipe(), Labels: p.Model.Architecture().LabelSet(), Preparer: p.NewRowPreparer()})}
	return h, h.readRows()
}

// readRows reads the held-out rows. It ignores rows added since the first call, so that scores of a run are comparable.
func (h *heldOutScorer) readRows() error {
	v, err := h.rows.Snapshot()
	if err != nil {
		return fmt.Errorf("cannot read the held-out data: %w", err)
	}
	if h.rowSnapshot.Rows != nil {
		v.Rows = v.Rows.FirstSamples(h.rowSnapshot.Rows.Len())
	}
	h.rowSnapshot = v
	return nil
}

// scoreModel decodes a model and scores it on the held-out data. If the last read failed, it first reads the rows
// again.
func (h *heldOutScorer) scoreModel(model []byte) (learner.Score, error) {
	if h.rowSnapshot.Err() != nil {
		if err := h.readRows(); err != nil {
			return learner.Score{}, err
		}
	}
	w := make([]float32, len(model)/4)
	if err := wire.DecodeVector(w, model); err != nil {
		return learner.Score{}, err
	}
	score := h.compiledTask.Model.Score(w, h.rowSnapshot.Rows)
	if err := h.rowSnapshot.Err(); err != nil {
		return score, fmt.Errorf("cannot read the held-out data: %w", err)
	}
	return score, nil
}
