// Package aggregation computes models from the updates of agents. It compiles the task, aggregates the updates of each
// round, leaves out updates that would spoil the model, and scores and stores the result.
//
// When the coordinator starts, the package restores the task and the model of the run. If a file is damaged, it uses a
// copy or an older model.
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

// InlineTask is the maximum size in bytes of a task that is sent inside an announcement. A model inside the same
// announcement may have another wire.MaxInlineBlobBytes.
const InlineTask = 8 << 10

// Config is the configuration of the learning task and its rounds.
type Config struct {
	Round       round.Config
	Task        wire.Task // learning task, without the standardisation of its columns
	Standardize bool      // true if a run begins with a statistics round, which computes the standardisation
	// FeatureClipDeviations is the number of standard deviations to which standardised features are clipped; 0 means no
	// clipping.
	FeatureClipDeviations float64
	// RestandardizeVersions lists the model versions that are followed by a statistics round.
	RestandardizeVersions []int
	HeldOutSource         data.Source // held-out data for scoring each new model; nil if not configured
	InitialModelPath      string      // path of the initial model's safetensors file; empty for a random model
	Logger                *slog.Logger
}

// Aggregator holds the task and the current model of a run. It aggregates the updates of each round into the next
// model, then stores and archives the model.
//
// An Aggregator is not safe for concurrent use: while Aggregate runs, no other method may be called.
type Aggregator struct {
	cfg    Config
	folder *runs.StateFolder
	now    func() time.Time
	// RetryWrite repeats a write until it succeeds or the coordinator stops. The default tries once.
	RetryWrite func(what string, write func() error) error

	compiledTask      *task.CompiledTask[float32]
	taskBlob          publish.Blob
	baseModelBlob     publish.Blob    // current model w_{i−1}; empty before the first training round
	baseModelFile     publish.Blob    // current model as a safetensors file; empty unless models are rolled out
	lastArchiveSyncAt time.Time       // time of the last synced write to the archive
	unarchivedModel   *runs.SlotModel // current model if it is not archived yet, else nil
	heldOutScorer     *heldOutScorer  // scorer of new models; nil without held-out data
	zeroModelRisk     float64         // held-out risk of a model whose parameters are all 0
	riskMonitor       riskMonitor

	// previousStandardization is the model's standardisation while a statistics round replaces it.
	previousStandardization learner.Standardization
}

// New returns an Aggregator without a task. The caller must next call BeginRun or RestoreTaskAndModel.
func New(cfg Config, folder *runs.StateFolder, now func() time.Time) *Aggregator {
	return &Aggregator{cfg: cfg, folder: folder, now: now,
		RetryWrite: func(_ string, write func() error) error { return write() }}
}

// Task returns the compiled task of the run.
func (w *Aggregator) Task() *task.CompiledTask[float32] { return w.compiledTask }

// BaseModel returns the current model w_{i−1}. It is empty before the first training round.
func (w *Aggregator) BaseModel() publish.Blob { return w.baseModelBlob }

// BaseModelFile returns the safetensors file of the current model. It is empty unless models are rolled out.
func (w *Aggregator) BaseModelFile() publish.Blob { return w.baseModelFile }

// BeginRun plans the first round of a run with task t. model is the first model of the run. If model is nil, the run
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

// AdoptConfiguredTask replans the next round of the record with the configured task, which differs from the task of the
// run. It keeps the model, the standardisation and the position in the step-size schedule. No round may be open.
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
			// Risks under different tasks are not comparable.
			r.Plan.RecentAggregations[i].ReportedRisks = round.ReportedRiskSummary{}
		}
	}
	r.Participants, r.Edges, r.MixingBlockRound, r.RandomDrawsMade = nil, nil, 0, 0
	return r, nil
}

// setTask makes t the task of the run and stores it on disk.
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

// planStatisticsRound plans a round that computes the standardisation of the columns.
func (w *Aggregator) planStatisticsRound() round.Plan {
	s := w.compiledTask.UpdateSchema(wire.KindStatistics)
	return round.Plan{Kind: wire.KindStatistics, Task: w.taskBlob.AnnouncementRef(InlineTask), UpdateSchema: s.Hash(),
		UpdateBytes: uint32(s.VectorByteCount()), Codec: spec.CodecRaw}
}

// storeModelAndPlanTraining stores a model and its optimiser state (nil if none) in a slot, and plans a training round
// on the model.
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
	w.unarchivedModel = m // Archive the model after the journal refers to it.
	return p, w.RetryWrite("save the model", func() error { return w.folder.SaveModelSlot(m) })
}

// planTraining makes model the base model and plans a training round on it.
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

// scheduleStepsPerRound returns the number of steps by which a round advances the step-size schedule. It is the maximum
// number of local steps, even if some agents take fewer.
func (w *Aggregator) scheduleStepsPerRound() uint64 {
	if w.compiledTask.Task.Training.ExchangeKind == spec.ExchangeGradient {
		return 1
	}
	return uint64(w.compiledTask.Task.Training.MaxLocalSteps)
}

// NonInlineBlobs returns the task and the model of a plan, each only if it is too large to be sent inside an
// announcement.
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

// syncArchive is the minimum time between two archive writes that are synced to disk. A power failure may lose the
// archived models written in between. It cannot lose the current model, which is also stored in a slot file.
const syncArchive = 10 * time.Second

// archiveModel stores a model and its optimiser state in the archive of the run.
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

// ArchivePendingModel archives the current model if it is not archived yet. A new run that starts from this model reads
// it from the archive.
func (w *Aggregator) ArchivePendingModel() error {
	m := w.unarchivedModel
	if w.unarchivedModel = nil; m == nil {
		return nil
	}
	return w.archiveModel(m)
}

// PendingArchiveWrite returns a function that archives the model with the given hash. It returns nil if the model is
// already archived. If durable is true, the write is synced.
func (w *Aggregator) PendingArchiveWrite(hash wire.Digest, durable bool) func() error {
	m := w.unarchivedModel
	if m == nil || m.Hash != hash {
		return nil
	}
	w.unarchivedModel = nil
	m.MustBeDurable = durable
	return func() error { return w.archiveModel(m) }
}

// setPlannedModelFile sets the model file of a plan if models are rolled out and the file fits into a blob.
func (w *Aggregator) setPlannedModelFile(p *round.Plan, file [][]byte) {
	w.baseModelFile = publish.Blob{}
	if w.cfg.Round.Rollout.IsEnabled() {
		if whole := slices.Concat(file...); len(whole) <= wire.MaxBlobBytes {
			w.baseModelFile = publish.NewBlob(whole, wire.Digest{})
		}
	}
	p.ModelFile = w.baseModelFile.Ref
}

// RestoreModelFile sets the model file of the record's plan if models are rolled out and the file is missing.
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

// encodeModel returns the safetensors file of a model as a list of byte slices. All slices except the first share
// memory with data.
func (w *Aggregator) encodeModel(run wire.RunID, version wire.ModelVersion, data []byte, hash wire.Digest) ([][]byte,
	error) {
	t := w.compiledTask
	m := modelfile.NewModel(&t.Task, t.Model.Architecture(), data, hash)
	m.Run, m.Version, m.ParentModel, m.PersonalTensors = run, version, w.folder.Origin.Model,
		t.Task.Personal.PersonalTensors
	return m.EncodePieces()
}
