package aggregation

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// RestoreTaskAndModel loads the task and the model of the round in the journal and returns the journal record to
// continue from. If the model is lost, the returned record abandons the round and continues from the newest intact
// model that is older. If no older model is intact, it continues from the newest intact model. Unless otherTask is
// true, the task of the run must equal the configured task. RestoreTaskAndModel calls report for each repair.
func (w *Aggregator) RestoreTaskAndModel(r round.JournalRecord, otherTask bool,
	report func(observe.Event)) (round.JournalRecord,
	error) {
	p := &r.Plan
	t, blob, err := w.restoreTask(r, report)
	if err != nil {
		return r, err
	}
	plain := t
	plain.Standardization = wire.Standardization{}
	other := !bytes.Equal(plain.AppendEncoding(nil), w.cfg.Task.AppendEncoding(nil))
	if other && !otherTask {
		e := &TaskMismatchError{}
		if p.Kind == wire.KindTraining {
			e.NewestModelName = runs.ModelName(r.Run, uint64(p.BaseModelVersion))
		}
		return r, e
	}
	switch err := w.compileTaskAndOpenHeldOut(t, blob); {
	case err != nil || !p.BaseModel.IsSet():
		return r, err
	case p.Kind == wire.KindStatistics:
		return r, w.resumeRestandardization(&r)
	}
	return w.restoreModel(r, report)
}

// restoreTask returns the task of the round in the journal. It reads the task file, or the journal if the task is
// small. Otherwise it rebuilds the task from the configuration and the standardisation in a model file. The hash of the
// task must match the journal.
func (w *Aggregator) restoreTask(r round.JournalRecord, report func(observe.Event)) (t wire.Task, blob []byte,
	err error) {
	want := r.Plan.Task
	is := func(blob []byte) bool { return wire.BlobDigest(blob) == want.Hash }
	// Before the statistics are aggregated, the task equals the configured task. The task file may be newer than the
	// journal.
	if blob = w.cfg.Task.AppendEncoding(nil); is(blob) {
		return w.cfg.Task, blob, nil
	}
	blob, damage := w.folder.LoadTask(is)
	if errors.As(damage, new(*store.FormatVersionError)) {
		return t, nil, w.folder.NewOperatorDecisionError(runs.Task.Name,
			damage.Error()+", so a different program version wrote it: finish the run with that version", damage)
	}
	if damage != nil && !store.IsMissingOrDamaged(damage) {
		return t, nil, damage
	}
	if damage == nil && !is(blob) {
		damage = &store.CorruptError{Path: w.folder.FilePath(runs.Task.Name),
			Reason: "the task file does not match the task recorded in the run's journal"}
	}
	if damage != nil {
		if blob = want.Inline; !is(blob) {
			blob = w.rebuildTaskBlob(is)
		}
		if blob == nil {
			return t, nil, w.folder.NewOperatorDecisionError(runs.Task.Name,
				damage.Error()+", and the task cannot be rebuilt from the configuration and a model of the run: "+
					"restore the file, or the configuration with which the run began", damage)
		}
	}
	if t, err = wire.DecodeTask(blob); err != nil {
		return t, nil, w.folder.NewOperatorDecisionError(runs.Task.Name,
			fmt.Sprintf(
				"the task of the run was written by a different program version (%v): finish the run with that version",
				err),
			err)
	}
	if damage == nil {
		return t, blob, nil
	}
	aside, err := w.folder.TaskSlots.SetAside()
	if err == nil {
		err = w.folder.SaveTask(blob)
	}
	report(StateFileRecovered{File: StateTask, Damage: damage, MovedTo: aside, PreviousVersion: r.Plan.BaseModelVersion,
		Version: r.Plan.BaseModelVersion})
	return t, blob, err
}

// rebuildTaskBlob combines the configured task with the standardisation of each model of the run, newest first. It
// returns the first encoded task for which is returns true, or nil.
func (w *Aggregator) rebuildTaskBlob(is func(blob []byte) bool) []byte {
	versions, err := w.folder.CurrentRunModels.Versions()
	if err != nil {
		return nil
	}
	for i := len(versions) - 1; i >= 0; i-- {
		m, err := w.folder.ReadModel(w.folder.CurrentRunModels, versions[i])
		if err != nil {
			continue
		}
		t := w.cfg.Task
		t.Standardization = m.Standardization
		if blob := t.AppendEncoding(nil); is(blob) {
			return blob
		}
	}
	return nil
}

// restoreModel loads the model of the journaled round. It reports models that are newer than the journal.
func (w *Aggregator) restoreModel(r round.JournalRecord, report func(observe.Event)) (round.JournalRecord, error) {
	p := &r.Plan
	versions, err := w.folder.CurrentRunModels.Versions()
	if err != nil {
		return r, err
	}
	// An interrupted aggregation may leave one model that is newer than the journal. If there are more, the journal
	// itself is an older copy.
	if n := len(versions); n > 0 && versions[n-1] > uint64(p.BaseModelVersion)+1 {
		report(ModelsNewerThanJournal{JournalVersion: p.BaseModelVersion, Newest: wire.ModelVersion(versions[n-1])})
	}
	s := w.compiledTask.UpdateSchema(wire.KindTraining)
	kept, err := w.folder.LoadModelSlot(r.Run, p.BaseModelVersion, p.BaseModel.Hash)
	if err != nil && !store.IsMissingOrDamaged(err) {
		return r, err
	}
	var data []byte
	if kept != nil {
		data = runs.ExtractModelVector(kept.SafetensorsPieces[0], p.BaseModel.Hash, s)
	}
	archived, damage := w.folder.LoadModelVector(p.BaseModelVersion, p.BaseModel.Hash, s)
	switch {
	case damage != nil && !store.IsMissingOrDamaged(damage):
		return r, damage
	case damage == nil && data == nil: // both slots of the model are damaged
		return r, errors.Join(w.restoreModelSlot(r.Run, p.BaseModelVersion, archived), w.setBaseModel(archived))
	case data != nil && damage != nil: // the previous process ended before archiving the model
		w.unarchivedModel = kept
		return r, w.setBaseModel(data)
	case damage == nil:
		return r, w.setBaseModel(data)
	}
	return w.repairArchivedModel(r, archived, versions, damage, report)
}

// repairArchivedModel replaces a damaged model in the archive. It uses data, or the inline copy in the journal if data
// is nil.
func (w *Aggregator) repairArchivedModel(r round.JournalRecord, data []byte, versions []uint64, damage error,
	report func(observe.Event)) (
	round.JournalRecord, error) {
	p := &r.Plan
	if data == nil && wire.BlobDigest(p.BaseModel.Inline) == p.BaseModel.Hash {
		data = p.BaseModel.Inline
	}
	if errors.As(damage, new(*store.FormatVersionError)) && data == nil {
		return r, w.folder.NewOperatorDecisionError(runs.ModelsDir,
			damage.Error()+", so a different program version wrote it: finish the run with that version", damage)
	}
	if data == nil {
		return w.fallBackToSoundModel(r, versions, damage, report)
	}
	aside, err := w.folder.CurrentRunModels.SetAsideModel(uint64(p.BaseModelVersion))
	if err != nil {
		return r, err
	}
	report(StateFileRecovered{File: StateModel, Damage: damage, MovedTo: firstAsideFileName(aside),
		PreviousVersion: p.BaseModelVersion,
		Version:         p.BaseModelVersion})
	file, err := w.encodeModel(r.Run, p.BaseModelVersion, data, p.BaseModel.Hash)
	if err == nil {
		err = w.folder.CurrentRunModels.Put(uint64(p.BaseModelVersion), p.BaseModel.Hash, true, file...)
	}
	if err == nil {
		err = w.restoreModelSlot(r.Run, p.BaseModelVersion, data)
	}
	return r, errors.Join(err, w.setBaseModel(data))
}

// restoreModelSlot writes an archived model into its slot.
func (w *Aggregator) restoreModelSlot(run wire.RunID, version wire.ModelVersion, data []byte) error {
	hash := wire.Digest(wire.BlobDigest(data))
	file, err := w.encodeModel(run, version, data, hash)
	if err != nil {
		return err
	}
	state, err := w.archivedServerState(w.folder.CurrentRunModels, uint64(version), hash)
	if err != nil && !store.IsMissingOrDamaged(err) {
		return err
	}
	return w.folder.SaveModelSlot(&runs.SlotModel{Run: run, Version: version, Hash: hash, SafetensorsPieces: file,
		OptimizerState: state})
}

func firstAsideFileName(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// setBaseModel makes data the base model of the round. It returns an error if a parameter is not finite.
func (w *Aggregator) setBaseModel(data []byte) error {
	w.baseModelBlob = publish.NewBlob(data, w.compiledTask.UpdateSchema(wire.KindTraining).Hash())
	return wire.DecodeVector(make([]float32, len(data)/4), data)
}

// fallBackToSoundModel abandons the round in the journal because the model of the round is lost. It returns a journal
// record for the next round, based on the newest intact model that is older. If no older model is intact, it uses the
// newest intact model. The updates of the abandoned round are lost.
func (w *Aggregator) fallBackToSoundModel(r round.JournalRecord, versions []uint64, damage error,
	report func(observe.Event)) (round.JournalRecord, error) {
	p := &r.Plan
	s := w.compiledTask.UpdateSchema(wire.KindTraining)
	var found *runs.StoredModel
	for _, v := range versions {
		if found != nil && found.Version < uint64(p.BaseModelVersion) && v > uint64(p.BaseModelVersion) {
			break
		}
		if m, err := w.folder.ReadModel(w.folder.CurrentRunModels, v); err == nil && m.MatchesSchema(s) {
			found = m
		}
	}
	if found == nil {
		return r, w.folder.NewOperatorDecisionError(runs.ModelsDir,
			fmt.Sprintf("model %s of the run is missing or damaged (%v), and the run has no other intact model",
				runs.ModelName(r.Run, uint64(p.BaseModelVersion)), damage), damage)
	}
	aside, err := w.folder.CurrentRunModels.SetAsideModel(uint64(p.BaseModelVersion))
	if err != nil {
		return r, err
	}
	data := found.EncodeVector(s)
	version := wire.ModelVersion(found.Version)
	if err := errors.Join(w.restoreModelSlot(r.Run, version, data), w.setBaseModel(data)); err != nil {
		return r, err
	}
	lost := p.BaseModelVersion
	offset := p.LocalStepOffset - uint64(lost)*w.scheduleStepsPerRound() + uint64(version)*w.scheduleStepsPerRound()
	report(StateFileRecovered{File: StateModel, Damage: damage, MovedTo: firstAsideFileName(aside),
		PreviousVersion: lost,
		Version:         version})
	r.AbandonUnrecoverableRound(w.now(), version, round.AbandonBaseModelLost)
	r.Phase, r.Plan = round.CoordinatorIdle, w.planTraining(version, offset, data)
	r.Participants, r.Edges, r.MixingBlockRound, r.RandomDrawsMade = nil, nil, 0, 0
	return r, nil
}

// TaskMismatchError reports that the run in the state folder has a different task from the configured one. Restarting
// does not help.
type TaskMismatchError struct {
	NewestModelName string // name of the run's newest model, as an argument of --from; empty if none
}

func (e *TaskMismatchError) Error() string {
	from := ""
	if e.NewestModelName != "" {
		from = fmt.Sprintf("from its newest model (--from %s) or ", e.NewestModelName)
	}
	return "the configured task differs from the task of the run in the state folder: restore the old task, or start " +
		"a new run " + from + "from an initial model (--new-run)"
}

var (
	damagedStateFiles = observe.GaugeByLabel("state_damaged",
		"Whether a state file was damaged or missing when the coordinator started (1) or not (0). The log describes "+
			"the recovery.",
		"file", observe.NamesAsStrings(RepairableStateFiles()))
	modelsAhead = observe.Gauge("models_ahead",
		"Number of versions by which the newest model on disk was newer than the model in the journal when the "+
			"coordinator started.")
)

// StateFileRecovered reports a state file that was damaged or missing at the start. Its content was recovered, or the
// run continues from another model. Models between Version and PreviousVersion are trained again.
type StateFileRecovered struct {
	File                     RepairableStateFile
	Damage                   error
	MovedTo                  string // new path of the damaged file; empty if it was missing
	PreviousVersion, Version wire.ModelVersion
}

// Describe implements observe.Event. The condition lasts until the process ends, because the operator should check the
// disk.
func (e StateFileRecovered) Describe(d *observe.EventDescription) {
	d.SetGauge(damagedStateFiles, 1, string(e.File))
	d.SetGauge(round.ModelVersion, float64(e.Version))
	attributes := []any{"file", e.File, "damage", e.Damage}
	if e.MovedTo != "" {
		attributes = append(attributes, "moved_to", e.MovedTo)
	}
	problem := fmt.Sprintf("model %d in the state folder is missing or damaged, so the run continues from model %d",
		e.PreviousVersion, e.Version)
	versions := append(attributes, "lost_version", e.PreviousVersion, "version", e.Version)
	switch {
	case e.Version < e.PreviousVersion:
		d.Log(observe.Error, "newest model of the run is missing or damaged; continuing from an older model",
			versions...)
	case e.Version > e.PreviousVersion:
		d.Log(observe.Error, "current model and all older models of the run are missing or damaged; continuing from "+
			"a newer model",
			versions...)
	default:
		d.Log(observe.Error, "damaged or missing state file recovered without loss", attributes...)
		problem = fmt.Sprintf("the file %s in the state folder was damaged or missing at the start; the coordinator "+
			"has recovered its content",
			e.File)
	}
	d.RaiseCondition("state "+string(e.File), problem, "check the disk of state_dir")
}

// ModelsNewerThanJournal reports models that were newer than the journal at the start. The journal may have been
// restored from an older copy. The models are kept, and are renamed when the run reaches their versions.
type ModelsNewerThanJournal struct{ JournalVersion, Newest wire.ModelVersion }

// Describe implements observe.Event.
func (e ModelsNewerThanJournal) Describe(d *observe.EventDescription) {
	d.SetGauge(modelsAhead, float64(e.Newest-e.JournalVersion))
	d.Log(observe.Warn, "models on disk are newer than the journal", "journal_version", e.JournalVersion,
		"newest_version", e.Newest)
	d.RaiseCondition("newer models",
		fmt.Sprintf("the disk contains models up to version %d, but the journal ends at version %d: the journal may "+
			"have been restored from an older copy", e.Newest, e.JournalVersion),
		fmt.Sprintf("to start a run from the newest model, use `coordinator run --from %d`", e.Newest))
}

// RepairableStateFile names a state file that can be repaired at the start. It is used as a metric label.
type RepairableStateFile string

// Files that can be repaired when the coordinator starts.
const (
	StateTask  RepairableStateFile = "task"
	StateModel RepairableStateFile = "model"
)

// RepairableStateFiles returns all files that can be repaired, for use as metric labels.
func RepairableStateFiles() []RepairableStateFile {
	return []RepairableStateFile{StateTask, StateModel}
}
