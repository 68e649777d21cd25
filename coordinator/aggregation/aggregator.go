// Package aggregation makes models from the updates of agents. It compiles the task of a run, aggregates the updates of
// each round into the next model by the configured rule and optimiser, leaves out updates that would spoil the model,
// scores the model on held-out data, and stores it. When the coordinator starts it restores the task and the model of
// the run, from copies or an older model if a file is damaged.
package aggregation

import (
	"log/slog"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// InlineTask is the maximum length of a task inside an announcement, in bytes. A model may have wire.MaxInlineBlobBytes
// more.
const InlineTask = 8 << 10

// Config is the configuration of the learning.
type Config struct {
	Round       round.Config
	Task        wire.Task // without a standardisation
	Standardize bool      // a run begins with a statistics round
	// features are clipped to ±FeatureClipDeviations standard deviations; 0 = they are not clipped
	FeatureClipDeviations float64
	// RestandardizeVersions are the versions of a run after which a statistics round is held.
	RestandardizeVersions []int
	HeldOutSource         data.Source // data on which each new model is scored; nil without any
	InitialModelPath      string      // the safetensors file of the initial model; empty for a random model
	Logger                *slog.Logger
}

// Aggregator has the task and the present model of a run. It aggregates the updates of each round into the next model,
// and stores and archives that.
//
// The owner and the job that aggregates a round use it in turn: no other method is called while Aggregate runs.
type Aggregator struct {
	cfg    Config
	folder *runs.StateFolder
	now    func() time.Time
	// RetryWrite repeats a write until it is done, or the coordinator stops. At first a write is tried once.
	RetryWrite func(what string, write func() error) error

	compiledTask      *task.CompiledTask[float32]
	taskBlob          publish.Blob
	baseModelBlob     publish.Blob    // w_{i−1}; empty before the first training round
	baseModelFile     publish.Blob    // the file of w_{i−1}; empty unless models are rolled out
	lastArchiveSyncAt time.Time       // when a model of the archive was last synced
	unarchivedModel   *runs.SlotModel // the present model if it is not in the archive yet, else nil
	heldOutScorer     *heldOutScorer  // nil without held-out data
	zeroModelRisk     float64         // the risk on the held-out data of a model with all parameters 0
	riskMonitor       riskMonitor

	// previousStandardization is the standardisation of the model during a statistics round in the middle of a run.
	previousStandardization learner.Standardization
}

// New makes an aggregator without a task. BeginRun or Restore comes next.
func New(cfg Config, folder *runs.StateFolder, now func() time.Time) *Aggregator {
	return &Aggregator{cfg: cfg, folder: folder, now: now,
		RetryWrite: func(_ string, write func() error) error { return write() }}
}

// Task returns the task that the run learns.
func (w *Aggregator) Task() *task.CompiledTask[float32] { return w.compiledTask }

// BaseModel returns the present model w_{i−1}. It is empty before the first training round.
func (w *Aggregator) BaseModel() publish.Blob { return w.baseModelBlob }

// BaseModelFile returns the file of the present model. It is empty unless models are rolled out.
func (w *Aggregator) BaseModelFile() publish.Blob { return w.baseModelFile }

// BeginRun plans the first round of a run that learns t. model is the run's first model, if there is one; else the run
// begins with a statistics round or with the initial model.
func (w *Aggregator) BeginRun(run wire.RunID, t wire.Task, model []byte) (round.Plan, error) {
	if err := w.setTask(t); err != nil {
		return round.Plan{}, err
	}
	var state [][]float64
	var err error
	switch {
	case model != nil:
		state, err = w.inheritedServerState()
	case w.cfg.Standardize:
		return w.planStatisticsRound(), nil
	default:
		model, err = w.initialModelBytes()
	}
	if err != nil {
		return round.Plan{}, err
	}
	return w.storeModelAndPlanTraining(run, 0, 0, model, state)
}

// AdoptConfiguredTask plans the record's next round in the configured task, which differs from the run's. The run's
// model, the standardisation of its columns and the time of its step-size schedule are kept. No round of the record may
// be open.
func (w *Aggregator) AdoptConfiguredTask(r round.JournalRecord) (round.JournalRecord, error) {
	p, t, model := r.Plan, w.cfg.Task, w.baseModelBlob.Data
	if t.Standardization = w.compiledTask.Task.Standardization; len(t.Standardization.Mean) > 0 {
		t.Standardization.Clip = w.cfg.FeatureClipDeviations
	}
	if err := w.setTask(t); err != nil {
		return r, err
	}
	if p.Kind == wire.KindStatistics {
		r.Plan = w.planStatisticsRound()
		r.Plan.BaseModelVersion, r.Plan.LocalStepOffset, r.Plan.BaseModel = p.BaseModelVersion, p.LocalStepOffset,
			p.BaseModel
	} else {
		state, err := w.loadServerState(r.Run, p.BaseModelVersion, p.BaseModel.Hash)
		if err == nil {
			r.Plan, err = w.storeModelAndPlanTraining(r.Run, p.BaseModelVersion, p.LocalStepOffset, model, state)
		}
		if err != nil {
			return r, err
		}
		r.Plan.RecentAggregations, r.Plan.LargeNormAgents = slices.Clone(p.RecentAggregations),
			slices.Clone(p.LargeNormAgents)
		for i := range r.Plan.RecentAggregations {
			// another task may have another risk
			r.Plan.RecentAggregations[i].ReportedRisks = round.ReportedRiskSummary{}
		}
	}
	r.Participants, r.Edges, r.MixingBlockRound, r.RandomDrawsMade = nil, nil, 0, 0
	return r, nil
}

// setTask makes t the run's task, in memory and on disk.
func (w *Aggregator) setTask(t wire.Task) error {
	blob := t.AppendEncoding(nil)
	if err := w.compileTaskAndOpenHeldOut(t, blob); err != nil {
		return err
	}
	return w.RetryWrite("save the task", func() error { return w.folder.SaveTask(blob) })
}

// compileTaskAndOpenHeldOut compiles the task and prepares the held-out data for it.
func (w *Aggregator) compileTaskAndOpenHeldOut(t wire.Task, text []byte) error {
	p, err := task.Compile[float32](t)
	if err != nil {
		return err
	}
	var held *heldOutScorer
	floor := w.zeroModelRisk
	if w.cfg.HeldOutSource != nil {
		if held, err = openHeldOutScorer(w.cfg.HeldOutSource, p); err != nil {
			return err
		}
		none, err := held.scoreModel(make([]byte, 4*p.Model.Architecture().ParameterCount()))
		if err != nil {
			return err
		}
		floor = none.Risk
	}
	w.compiledTask, w.taskBlob, w.heldOutScorer, w.zeroModelRisk = p, publish.NewBlob(text, wire.Digest{}), held, floor
	return nil
}

// planStatisticsRound plans a round that standardises the columns.
func (w *Aggregator) planStatisticsRound() round.Plan {
	s := w.compiledTask.UpdateSchema(wire.KindStatistics)
	return round.Plan{Kind: wire.KindStatistics, Task: w.taskBlob.AnnouncementRef(InlineTask), UpdateSchema: s.Hash(),
		UpdateBytes: uint32(s.VectorByteCount()), Codec: spec.CodecRaw}
}

// storeModelAndPlanTraining stores a model in its slot, with the state of the optimiser that made it if there is one,
// and plans a round on that model.
func (w *Aggregator) storeModelAndPlanTraining(run wire.RunID, version wire.ModelVersion, offset uint64, model []byte,
	state [][]float64) (round.Plan, error) {
	p := w.planTraining(version, offset, model)
	file, err := w.encodeModel(run, version, model, p.BaseModel.Hash)
	if err != nil {
		return round.Plan{}, err
	}
	w.setPlannedModelFile(&p, file)
	m := &runs.SlotModel{Run: run, Version: version, Hash: p.BaseModel.Hash, SafetensorsPieces: file,
		OptimizerState: w.packServerState(state)}
	w.unarchivedModel = m // it is archived after the journal that names it
	return p, w.RetryWrite("save the model", func() error { return w.folder.SaveModelSlot(m) })
}

// planTraining plans a round on a stored model.
func (w *Aggregator) planTraining(version wire.ModelVersion, offset uint64, model []byte) round.Plan {
	s := w.compiledTask.UpdateSchema(wire.KindTraining)
	w.baseModelBlob = publish.NewBlob(model, s.Hash())
	t := &w.compiledTask.Task.Training
	p := round.Plan{
		Kind: wire.KindTraining, BaseModelVersion: version, LocalStepOffset: offset, Exchange: t.ExchangeKind,
		ServerStepSize:   w.compiledTask.Schedule.StepSizeAt(offset + 1),
		Task:             w.taskBlob.AnnouncementRef(InlineTask),
		BaseModel:        w.baseModelBlob.AnnouncementRef(wire.MaxInlineBlobBytes),
		UpdateSchema:     s.Hash(),
		UpdateBytes:      uint32(codec.ForName[float32](t.UpdateCodec).EncodedSize(s.ElementCount())),
		Codec:            t.UpdateCodec,
		HasEndlessBlocks: w.compiledTask.Task.Mixing.HasEndlessBlocks,
	}
	if wire.MayFallBackToRaw(t.UpdateCodec) {
		p.RawUpdateBytes = uint32(s.VectorByteCount())
	}
	return p
}

// scheduleStepsPerRound returns by how much the time t of the step-size schedule advances in a round. Agents that take
// fewer than the maximum of local steps count as if they had taken all.
func (w *Aggregator) scheduleStepsPerRound() uint64 {
	if w.compiledTask.Task.Training.ExchangeKind == spec.ExchangeGradient {
		return 1
	}
	return uint64(w.compiledTask.Task.Training.MaxLocalSteps)
}

// NonInlineBlobs returns the task and the model of a plan, as far as announcements of the plan do not contain them.
func (w *Aggregator) NonInlineBlobs(p *round.Plan) []publish.Blob {
	var all []publish.Blob
	if p.Task.IsSet() && p.Task.Inline == nil {
		all = append(all, w.taskBlob)
	}
	if p.Kind == wire.KindTraining && p.BaseModel.IsSet() && p.BaseModel.Inline == nil {
		all = append(all, w.baseModelBlob)
	}
	return all
}

// syncArchive is the least time between two models of the archive that are synced. A power cut may lose the models in
// between, but never the present one, which is in its slot.
const syncArchive = 10 * time.Second

// archiveModel stores a model, and the state of the optimiser with it, in the archive of its run.
func (w *Aggregator) archiveModel(m *runs.SlotModel) error {
	now := w.now()
	durable := m.MustBeDurable || now.Sub(w.lastArchiveSyncAt) >= syncArchive
	if m.OptimizerState != nil {
		if err := w.folder.CurrentRunModels.PutOptimizerState(uint64(m.Version), m.Hash, m.OptimizerState,
			durable); err != nil {
			return err
		}
	}
	err := w.folder.SaveModel(m, durable, w.cfg.Logger)
	if err == nil && durable {
		w.lastArchiveSyncAt = now
	}
	return err
}

// ArchivePendingModel stores the present model in the archive, unless it is there already: a new run that begins with
// the modelVector reads it from there.
func (w *Aggregator) ArchivePendingModel() error {
	m := w.unarchivedModel
	if w.unarchivedModel = nil; m == nil {
		return nil
	}
	return w.archiveModel(m)
}

// PendingArchiveWrite returns a function that stores the model with that hash in the archive; nil if it is there
// already. durable means that the model is synced.
func (w *Aggregator) PendingArchiveWrite(hash wire.Digest, durable bool) func() error {
	m := w.unarchivedModel
	if m == nil || m.Hash != hash {
		return nil
	}
	w.unarchivedModel = nil
	m.MustBeDurable = durable
	return func() error { return w.archiveModel(m) }
}

// setPlannedModelFile sets the file of a plan's model, if models are rolled out and the file is not too long for a
// blob.
func (w *Aggregator) setPlannedModelFile(p *round.Plan, file [][]byte) {
	w.baseModelFile = publish.Blob{}
	if w.cfg.Round.Rollout.IsEnabled() {
		if whole := slices.Concat(file...); len(whole) <= wire.MaxBlobBytes {
			w.baseModelFile = publish.NewBlob(whole, wire.Digest{})
		}
	}
	p.ModelFile = w.baseModelFile.Ref
}

// RestoreModelFile sets the file of the record's model, if models are rolled out and the file is missing.
func (w *Aggregator) RestoreModelFile(r *round.JournalRecord) error {
	p := &r.Plan
	if !w.cfg.Round.Rollout.IsEnabled() || p.Kind != wire.KindTraining || w.baseModelFile.Data != nil {
		return nil
	}
	file, err := w.encodeModel(r.Run, p.BaseModelVersion, w.baseModelBlob.Data, p.BaseModel.Hash)
	if err == nil {
		w.setPlannedModelFile(p, file)
	}
	return err
}

// encodeModel returns the file of a model in pieces; all but the first are views into the model's vector.
func (w *Aggregator) encodeModel(run wire.RunID, version wire.ModelVersion, data []byte, hash wire.Digest) ([][]byte,
	error) {
	t := w.compiledTask
	m := modelfile.NewModel(&t.Task, t.Model.Architecture(), data, hash)
	m.Run, m.Version, m.ParentModel, m.PersonalTensors = run, version, w.folder.Origin.Model,
		t.Task.Personal.PersonalTensors
	return m.EncodePieces()
}
