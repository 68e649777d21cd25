package aggregation

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// A statistics round in the middle of a run includes agents that joined after the first statistics round. The model is
// kept and converted to the new standardisation, with unchanged predictions on raw data. The result is the next
// version.

// planRestandardizationIfDue returns the plan of a statistics round if RestandardizeVersions contains the model version
// of next. Otherwise it returns next.
func (w *Aggregator) planRestandardizationIfDue(next round.Plan) (round.Plan, error) {
	last := w.cfg.Round.MaxAggregations > 0 && next.BaseModelVersion >= wire.ModelVersion(w.cfg.Round.MaxAggregations)
	standardization := w.compiledTask.Standardization()
	if last || !slices.Contains(w.cfg.RestandardizeVersions,
		int(next.BaseModelVersion)) || len(standardization.Mean) == 0 {
		return next, nil
	}
	w.previousStandardization = standardization
	if err := w.compileTaskAndOpenHeldOut(w.cfg.Task, w.cfg.Task.AppendEncoding(nil)); err != nil {
		return round.Plan{}, err
	}
	p := w.planStatisticsRound()
	p.BaseModelVersion, p.LocalStepOffset, p.BaseModel = next.BaseModelVersion, next.LocalStepOffset, next.BaseModel
	return p, nil
}

// planTrainingAfterStatistics plans the training round after a statistics round in the middle of a run. t is the task
// with the new standardisation. The step-size schedule continues. The state of the server optimiser and the rule is
// reset, because it refers to the old columns.
func (w *Aggregator) planTrainingAfterStatistics(run wire.RunID, p *round.Plan, t wire.Task) (round.Plan, error) {
	model, st := make([]float32, len(w.baseModelBlob.Data)/4), &t.Standardization
	if err := wire.DecodeVector(model, w.baseModelBlob.Data); err != nil {
		return round.Plan{}, err
	}
	to := learner.Standardization{Mean: st.Mean, Scale: st.Scale, Clip: st.Clip}
	switch err := w.compiledTask.Model.RestandardizeParameters(model, w.previousStandardization, to); {
	case errors.Is(err, learner.ErrNoBias):
		w.cfg.Logger.Warn("model has no biases, so its conversion to the new standardisation of the columns is only "+
			"approximate",
			"version", p.BaseModelVersion)
	case err != nil:
		return round.Plan{}, err
	}
	if err := w.setTask(t); err != nil {
		return round.Plan{}, err
	}
	return w.storeModelAndPlanTraining(run, p.BaseModelVersion+1, p.LocalStepOffset, wire.AppendVector(nil, model),
		w.newServerState(len(model)))
}

// resumeRestandardization loads the model and its standardisation for a statistics round in the middle of a run.
func (w *Aggregator) resumeRestandardization(r *round.JournalRecord) error {
	p, s := &r.Plan, w.compiledTask.UpdateSchema(wire.KindTraining)
	kept, err := w.folder.LoadModelSlot(r.Run, p.BaseModelVersion, p.BaseModel.Hash)
	if err != nil && !store.IsMissingOrDamaged(err) {
		return err
	}
	var file []byte
	if kept != nil && runs.ExtractModelVector(kept.SafetensorsPieces[0], p.BaseModel.Hash, s) != nil {
		file = kept.SafetensorsPieces[0]
	}
	archived, damage := w.folder.CurrentRunModels.Get(uint64(p.BaseModelVersion))
	switch {
	case damage != nil && !store.IsMissingOrDamaged(damage):
		return damage
	case damage != nil:
		w.unarchivedModel = kept // The previous process ended before archiving the model.
	case file == nil && runs.ExtractModelVector(archived, p.BaseModel.Hash, s) != nil:
		file = archived
		err := w.folder.SaveModelSlot(&runs.SlotModel{Run: r.Run, Version: p.BaseModelVersion, Hash: p.BaseModel.Hash,
			SafetensorsPieces: [][]byte{file}})
		if err != nil {
			return err
		}
	}
	if file == nil {
		return w.folder.NewOperatorDecisionError(runs.ModelsDir, "model "+runs.ModelName(r.Run,
			uint64(p.BaseModelVersion))+" of the run is missing or damaged",
			damage)
	}
	m, err := runs.DecodeModel(runs.Model.Name, file)
	if err != nil {
		return err
	}
	w.previousStandardization = learner.Standardization{Mean: m.Standardization.Mean, Scale: m.Standardization.Scale,
		Clip: m.Standardization.Clip}
	return w.setBaseModel(runs.ExtractModelVector(file, p.BaseModel.Hash, s))
}

// aggregateStatistics computes the standardisation from the agents' moments and plans the next training round.
func (w *Aggregator) aggregateStatistics(run wire.RunID, spool *store.UpdateSpool,
	e round.AggregateUpdates) (round.Plan,
	[]observe.Event,
	error) {
	ready := StatisticsReady{Columns: len(w.compiledTask.Task.Features) + 1}
	var same constantColumnDetector
	t, far, err := w.compiledTask.WithStandardization(len(e.Contributions),
		func(take func(*learner.ColumnMoments)) error {
			ready.Rows, same = 0, constantColumnDetector{}
			return eachMoments(spool, e.Contributions, func(m *learner.ColumnMoments) {
				ready.Rows += m.RowCount
				same.addMoments(m)
				take(m)
			})
		}, w.cfg.FeatureClipDeviations)
	if err != nil {
		return round.Plan{}, nil, err
	}
	name := func(column int) string {
		if column < len(t.Features) {
			return t.Features[column]
		}
		return t.TargetColumn
	}
	for _, f := range far {
		ready.DistantDataAgents = append(ready.DistantDataAgents, DistantDataAgent{e.Contributions[f.DeviceIndex].Agent,
			name(f.ColumnIndex),
			f.DistanceInSigmas})
	}
	for _, column := range same.constantColumnIndices() {
		if column < len(t.Features) || t.Model.Risk.StandardizesTarget() && t.TargetColumn != "" {
			ready.ConstantColumns = append(ready.ConstantColumns, name(column))
		}
	}
	if e.Plan.BaseModel.IsSet() {
		next, err := w.planTrainingAfterStatistics(run, &e.Plan, t)
		return next, []observe.Event{ready}, err
	}
	// Read the model first: an error here must leave the task unchanged.
	model, from, err := w.modelBeforeRestandardization()
	if err != nil {
		return round.Plan{}, nil, err
	}
	if err := w.setTask(t); err != nil {
		return round.Plan{}, nil, err
	}
	next, err := w.storeModelAndPlanTraining(run, 0, 0, wire.AppendVector(nil, w.firstModelAfterStatistics(model,
		from)), nil)
	return next, []observe.Event{ready}, err
}

// constantColumnDetector finds columns with the same value in all rows of all devices.
type constantColumnDetector struct {
	variesByColumn     []bool
	minMeans, maxMeans []float64 // minimum and maximum of the devices' means, by column
}

func (c *constantColumnDetector) addMoments(m *learner.ColumnMoments) {
	if c.variesByColumn == nil {
		c.variesByColumn, c.minMeans, c.maxMeans = make([]bool, len(m.Mean)), slices.Clone(m.Mean), slices.Clone(m.Mean)
	}
	for j, mean := range m.Mean {
		c.variesByColumn[j] = c.variesByColumn[j] || !m.IsConstantColumn(j)
		c.minMeans[j], c.maxMeans[j] = min(c.minMeans[j], mean), max(c.maxMeans[j], mean)
	}
}

func (c *constantColumnDetector) constantColumnIndices() (all []int) {
	for j, varies := range c.variesByColumn {
		if !varies && c.minMeans[j] == c.maxMeans[j] {
			all = append(all, j)
		}
	}
	return all
}

// eachMoments calls take with the moments of each agent.
func eachMoments(spool *store.UpdateSpool, set []round.Contribution, take func(*learner.ColumnMoments)) error {
	var buffer []byte
	for _, x := range set {
		payload, err := spool.ReadPayload(string(x.Agent), buffer)
		if err != nil {
			return wrapSpoolReadError(x.Agent, err)
		}
		m, err := decodeMoments(payload)
		if err != nil {
			return wrapSpoolReadError(x.Agent, err)
		}
		take(m)
		buffer = slices.Grow(payload[:0], len(payload))
	}
	return nil
}

// decodeMoments decodes the column moments in an update of a statistics round.
func decodeMoments(payload []byte) (*learner.ColumnMoments, error) {
	v := make([]float64, len(payload)/8)
	if err := wire.DecodeVector(v, payload); err != nil {
		return nil, err
	}
	return learner.ColumnMomentsFromVector(v)
}

var statisticsRows = observe.OptionalGauge("statistics_rows",
	"Total number of rows, over all agents, from which the column means and scales of the task were computed.")

// StatisticsReady reports that a statistics round computed the standardisation of the task.
type StatisticsReady struct {
	Rows              float64
	Columns           int
	DistantDataAgents []DistantDataAgent
	// ConstantColumns lists columns with the same value in all rows of all devices. They are not scaled.
	ConstantColumns []string
}

// DistantDataAgent is an agent whose data lie far from the data of the other agents.
type DistantDataAgent struct {
	Agent              wire.AgentID
	Column             string  // the column with the largest distance
	DeviationsFromMean float64 // distance from the common mean, in common standard deviations
}

// Describe implements observe.Event.
func (e StatisticsReady) Describe(d *observe.EventDescription) {
	const constantCondition, distantCondition = "constant columns", "distant data"
	d.SetGauge(statisticsRows, e.Rows)
	d.Log(observe.Info, "columns standardised", "rows", e.Rows, "columns", e.Columns)
	for _, column := range e.ConstantColumns {
		d.Log(observe.Warn, "column has the same value on all devices and is therefore not scaled", "column", column)
	}
	if len(e.ConstantColumns) > 0 {
		d.RaiseCondition(constantCondition,
			"these columns have the same value on all devices and are therefore not scaled: "+
				observe.JoinNames(e.ConstantColumns),
			"remove them from task.features, or subtract a constant from their values if small differences are lost "+
				"in float32")
	} else {
		d.ResolveCondition(constantCondition)
	}
	var distant []string
	for _, a := range e.DistantDataAgents {
		deviations := observe.RoundToFourDigits(a.DeviationsFromMean)
		d.Log(observe.Warn, "data of an agent differs strongly from the data of the other agents", "agent", a.Agent,
			"column", a.Column, "deviations", deviations)
		distant = append(distant, fmt.Sprintf("%s (%s, by %g standard deviations)", a.Agent, a.Column, deviations))
	}
	if len(distant) > 0 {
		d.RaiseCondition(distantCondition,
			"the data of some agents differs strongly from the data of all others and is ignored when the column "+
				"means and scales are computed: "+observe.JoinNames(distant),
			"check the column's unit and sensor on these devices, then run `coordinator restandardize`")
	} else {
		d.ResolveCondition(distantCondition)
	}
}
