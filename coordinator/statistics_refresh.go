package coordinator

import (
	"errors"
	"slices"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// In the middle of a run a statistics round may take up the agents that have joined since the first one. Its plan keeps
// the model, which is the next version when it is expressed in the new columns: on raw data it predicts what it did.

// statisticsRoundFollows reports whether a statistics round follows the model of that version.
func (w *modelState) statisticsRoundFollows(version wire.ModelVersion) bool {
	last := w.cfg.Round.MaxAggregations > 0 && version >= wire.ModelVersion(w.cfg.Round.MaxAggregations)
	return slices.Contains(w.cfg.RestandardizeVersions, int(version)) && !last &&
		len(w.compiledTask.Standardization().Mean) > 0
}

// planStatisticsRefresh plans that round in the place of the training round next, whose model is stored.
func (w *modelState) planStatisticsRefresh(next *round.Plan) (round.Plan, error) {
	w.previousStandardization = w.compiledTask.Standardization()
	if err := w.prepareTask(w.cfg.Task, w.cfg.Task.Append(nil)); err != nil {
		return round.Plan{}, err
	}
	p := w.planStatisticsRound()
	p.Version, p.Offset, p.Base = next.Version, next.Offset, next.Base
	return p, nil
}

// planAfterStatistics plans the training round after it, in the task that the statistics have made. The schedule goes
// on; the server's optimiser, and a rule that keeps a state, begin anew, since that is of the old columns.
func (w *modelState) planAfterStatistics(run wire.RunID, p *round.Plan, t wire.Task) (round.Plan, error) {
	model, st := make([]float32, len(w.baseModelBlob.Data)/4), &t.Standardization
	if err := wire.DecodeVector(model, w.baseModelBlob.Data); err != nil {
		return round.Plan{}, err
	}
	to := learner.Standardization{Mean: st.Mean, Scale: st.Scale, Clip: st.Clip}
	switch err := w.compiledTask.Model.Restandardize(model, w.previousStandardization, to); {
	case errors.Is(err, learner.ErrNoBias):
		w.cfg.Logger.Warn("the model has no biases to take up the columns' new means: it goes on a little off",
			"version", p.Version)
	case err != nil:
		return round.Plan{}, err
	}
	if err := w.setTask(t); err != nil {
		return round.Plan{}, err
	}
	return w.storeAndPlanTraining(run, p.Version+1, p.Offset, wire.AppendVector(nil, model), w.newState(len(model)))
}

// resumeRefresh loads the model of a statistics round in the middle of a run, and the columns in which it is expressed.
func (w *modelState) resumeRefresh(r *round.Record) error {
	p, s := &r.Plan, w.compiledTask.Schema(wire.KindTraining)
	kept, err := w.stateFolder.LoadSlot(r.Run, p.Version, p.Base.Hash)
	if err != nil && !store.IsMissingOrDamaged(err) {
		return err
	}
	var file []byte
	if kept != nil && runs.ExtractModelVector(kept.SafetensorsPieces[0], p.Base.Hash, s) != nil {
		file = kept.SafetensorsPieces[0]
	}
	archived, damage := w.stateFolder.Models.Get(uint64(p.Version))
	switch {
	case damage != nil && !store.IsMissingOrDamaged(damage):
		return damage
	case damage != nil:
		w.unarchivedModel = kept // the process before, or the power, has ended before it was archived
	case file == nil && runs.ExtractModelVector(archived, p.Base.Hash, s) != nil:
		file = archived
		err := w.stateFolder.SaveSlot(&runs.SlotModel{Run: r.Run, Version: p.Version, Hash: p.Base.Hash,
			SafetensorsPieces: [][]byte{file}})
		if err != nil {
			return err
		}
	}
	if file == nil {
		return w.stateFolder.DecisionError(runs.ModelsDir, "model "+runs.ModelName(r.Run,
			uint64(p.Version))+" of the run is lost",
			damage)
	}
	m, err := runs.DecodeModel(runs.ModelFile, file)
	if err != nil {
		return err
	}
	w.previousStandardization = learner.Standardization{Mean: m.Standardization.Mean, Scale: m.Standardization.Scale,
		Clip: m.Standardization.Clip}
	return w.setBaseModel(runs.ExtractModelVector(file, p.Base.Hash, s))
}
