package coordinator

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// TaskMismatchError is returned by New when the run in the state folder learns another task than the configured one. A
// restart does not help.
type TaskMismatchError struct {
	NewestModel string // the run's newest model, as --from takes it; "" if it has none yet
}

func (e *TaskMismatchError) Error() string {
	from := ""
	if e.NewestModel != "" {
		from = fmt.Sprintf("from its newest model (--from %s) or ", e.NewestModel)
	}
	return "the configured task differs from that of the run in the state folder: restore the old task, or begin a " +
		"new run " + from + "from an initial model (--new-run)"
}

// resumeRun returns the record of the folder's run, or of a new one.
func (c *Coordinator) resumeRun() (round.Record, error) {
	record, found, err := c.stateFolder.LoadRecord()
	unsound := store.IsDamage(err)
	if err != nil && !unsound {
		return record, err
	}
	begins := c.cfg.NewRun
	if !begins && c.cfg.StartModel != "" {
		if begins, err = c.startModelNeedsNewRun(record, found); err != nil {
			return record, err
		}
		if !begins && c.modelState.mustAdoptTask() {
			return record, ErrRunContinues
		}
	}
	// A run that was begun with --from and never announced is still new to the broker.
	c.newRunRequested = begins || c.cfg.StartModel != "" && record.Round == 0 && !c.stateFolder.Origin.Restandardized
	if begins && found && c.cfg.StartModel == StartFromCurrentModel {
		if record, err = c.startFromCurrentModel(record); err != nil {
			return record, err
		}
	}
	c.stateFolder.RunStartedFresh = c.stateFolder.RunStartedFresh && !begins
	switch {
	case begins && unsound:
		aside, failed := c.stateFolder.JournalSlots.SetAside()
		if failed != nil {
			return record, failed
		}
		c.cfg.Logger.Error("the journal of the previous run cannot be read; its models are kept", "err", err,
			"moved_to", aside)
		return c.planNewRun(round.Record{}, "")
	case begins:
		return c.planNewRun(record, "")
	case unsound:
		return record, c.stateFolder.DecisionError(runs.RecordFile, err.Error(), err)
	case !found:
		if _, newest := c.stateFolder.NewestModel(); newest > 0 {
			return record, c.stateFolder.DecisionError(runs.RecordFile,
				"the journal is missing, but there are models of a run",
				nil)
		}
		c.stateFolder.RunStartedFresh = true
		return c.planNewRun(round.Record{}, "")
	}
	if c.stateFolder.JournalDamage != nil {
		c.cfg.Logger.Warn("the newest copy of the journal was not written to its end; the one before it counts", "err",
			c.stateFolder.JournalDamage)
	}
	if err := c.stateFolder.JournalSlots.MakeDurable(); err != nil {
		return record, err
	}
	if err := c.stateFolder.OpenCurrentRun(record.Run); err != nil {
		return record, err
	}
	record, err = c.modelState.restoreTaskAndModel(record, c.queueEvent)
	if err == nil && c.modelState.mustAdoptTask() {
		record, err = c.adoptConfiguredTask(record)
	}
	c.stateFolder.AppliedTaskVersion = c.cfg.TaskVersion
	if err == nil && c.restandardizeRequested(record) {
		if err := c.modelState.archivePendingModel(); err != nil {
			return record, err
		}
		return c.planNewRun(record, runs.ModelName(record.Run, uint64(record.Plan.Version)))
	}
	return record, err
}

// planNewRun plans a new run, with a larger id than all earlier runs. again, if not empty, names the model to continue
// from in a new standardisation.
func (c *Coordinator) planNewRun(before round.Record, again string) (round.Record, error) {
	stored, err := c.stateFolder.Runs()
	if err != nil {
		return round.Record{}, err
	}
	newest := before.Run
	for _, run := range stored {
		newest = max(newest, run)
	}
	present := before.Run // a newer folder is of a run that was not begun yet when the process was killed
	if present == 0 {
		present = newest
	}
	record := round.Record{Run: max(wire.RunID(c.ownerLoop.Now().UnixMilli()), newest+1), Phase: round.CoordinatorIdle,
		Rollout: before.Rollout}
	t, model := c.cfg.Task, []byte(nil)
	switch {
	case again != "":
		if c.stateFolder.Origin, err = c.restandardizedOrigin(again); err != nil {
			return record, err
		}
	case c.cfg.StartModel != "":
		if c.stateFolder.Origin, model, t, err = c.readOrigin(c.cfg.StartModel, present); err != nil {
			return record, err
		}
	case c.cfg.InitialModelPath != "" && !t.External.Enabled():
		if c.stateFolder.Origin, model, t, err = c.initialModelOrigin(); err != nil {
			return record, err
		}
	default:
		c.stateFolder.Origin = runs.Origin{}
	}
	if from := c.stateFolder.Origin.Model; from != "" {
		c.cfg.Logger.Info("a run begins from a model", "model", from, "run", record.Run,
			"new_statistics_round", again != "")
	}
	if err := c.stateFolder.OpenCurrentRun(record.Run); err != nil {
		return record, err
	}
	if err := c.modelState.setTask(t); err != nil {
		return record, err
	}
	switch {
	case model != nil:
		var state [][]float64
		if state, err = c.modelState.inheritedServerState(); err == nil {
			record.Plan, err = c.modelState.storeAndPlanTraining(record.Run, 0, 0, model, state)
			record.Rollout = rollout.State{} // a person has chosen the model
			record.Rollout.Release(record.NewestModel())
		}
	case c.cfg.Standardize:
		record.Plan = c.modelState.planStatisticsRound()
	default:
		var w []byte
		if w, err = c.modelState.initialModelBytes(); err == nil {
			record.Plan, err = c.modelState.storeAndPlanTraining(record.Run, 0, 0, w, nil)
		}
	}
	if err == nil {
		err = c.stateFolder.RemoveSpoolsBut(0)
	}
	if err == nil {
		err = c.saveAdoptedRecord(record)
	}
	if err == nil && c.cfg.KeepRuns > 0 {
		err = c.removeOldRuns(stored, &record.Rollout)
	}
	return record, err
}

// restoreTaskAndModel loads the task and the model of a journaled round. If the model is lost, it returns a record
// between two rounds with the newest sound model that is older, or else newer. tell receives each repair.
func (w *modelState) restoreTaskAndModel(r round.Record, tell func(observe.Event)) (round.Record, error) {
	p := &r.Plan
	t, blob, err := w.restoreTask(r, tell)
	if err != nil {
		return r, err
	}
	plain := t
	plain.Standardization = wire.Standardization{}
	other := !bytes.Equal(plain.Append(nil), w.cfg.Task.Append(nil))
	if other && !w.mustAdoptTask() {
		e := &TaskMismatchError{}
		if p.Kind == wire.KindTraining {
			e.NewestModel = runs.ModelName(r.Run, uint64(p.Version))
		}
		return r, e
	}
	switch err := w.prepareTask(t, blob); {
	case err != nil || !p.Base.Present():
		return r, err
	case p.Kind == wire.KindStatistics:
		return r, w.resumeRefresh(&r)
	}
	return w.restoreModel(r, tell)
}

// restoreTask returns the task of the journaled round: from its file, from the journal if the task is small, or rebuilt
// from the configuration and the standardisation in a model's file. Its digest must be that in the journal.
func (w *modelState) restoreTask(r round.Record, tell func(observe.Event)) (t wire.Task, blob []byte, err error) {
	want := r.Plan.Task
	is := func(blob []byte) bool { return wire.BlobDigest(blob) == want.Hash }
	// Before the statistics are folded the task is the configured one. The file may already hold the task that a fold
	// has made and that is not in the journal yet.
	if blob = w.cfg.Task.Append(nil); is(blob) {
		return w.cfg.Task, blob, nil
	}
	blob, damage := w.stateFolder.LoadTask(is)
	if errors.As(damage, new(*store.VersionError)) {
		return t, nil, w.stateFolder.DecisionError(runs.TaskFile,
			damage.Error()+", so another version of the program wrote it: finish the run with that one", damage)
	}
	if damage != nil && !store.IsMissingOrDamaged(damage) {
		return t, nil, damage
	}
	if damage == nil && !is(blob) {
		damage = &store.CorruptError{Path: w.stateFolder.Path(runs.TaskFile), Reason: "the journal names another task"}
	}
	if damage != nil {
		if blob = want.Inline; !is(blob) {
			blob = w.rebuildTask(is)
		}
		if blob == nil {
			return t, nil, w.stateFolder.DecisionError(runs.TaskFile,
				damage.Error()+", and it cannot be rebuilt from the configured task and a model of the run: "+
					"restore the file, or the configuration of the run", damage)
		}
	}
	if t, err = wire.DecodeTask(blob); err != nil {
		return t, nil, w.stateFolder.DecisionError(runs.TaskFile,
			fmt.Sprintf("another version of the program wrote the run's task (%v): finish the run with that one", err),
			err)
	}
	if damage == nil {
		return t, blob, nil
	}
	aside, err := w.stateFolder.TaskSlots.SetAside()
	if err == nil {
		err = w.stateFolder.SaveTask(blob)
	}
	tell(StateFileRecovered{File: StateTask, Damage: damage, MovedTo: aside, PreviousVersion: r.Plan.Version,
		Version: r.Plan.Version})
	return t, blob, err
}

// rebuildTask returns the blob of the configured task with the standardisation of one of the run's models, newest
// first, or nil if none has the hash.
func (w *modelState) rebuildTask(is func(blob []byte) bool) []byte {
	versions, err := w.stateFolder.Models.Versions()
	if err != nil {
		return nil
	}
	for i := len(versions) - 1; i >= 0; i-- {
		m, err := w.stateFolder.ReadModel(w.stateFolder.Models, versions[i])
		if err != nil {
			continue
		}
		t := w.cfg.Task
		t.Standardization = m.Standardization
		if blob := t.Append(nil); is(blob) {
			return blob
		}
	}
	return nil
}

// restoreModel loads the model of the journaled round, and reports models that are newer than the journal.
func (w *modelState) restoreModel(r round.Record, tell func(observe.Event)) (round.Record, error) {
	p := &r.Plan
	versions, err := w.stateFolder.Models.Versions()
	if err != nil {
		return r, err
	}
	// An interrupted fold leaves one model newer than the journal; two or more belong to a newer journal.
	if n := len(versions); n > 0 && versions[n-1] > uint64(p.Version)+1 {
		tell(ModelsNewerThanJournal{JournalVersion: p.Version, Newest: wire.ModelVersion(versions[n-1])})
	}
	s := w.compiledTask.Schema(wire.KindTraining)
	kept, err := w.stateFolder.LoadSlot(r.Run, p.Version, p.Base.Hash)
	if err != nil && !store.IsMissingOrDamaged(err) {
		return r, err
	}
	var data []byte
	if kept != nil {
		data = runs.ExtractModelVector(kept.SafetensorsPieces[0], p.Base.Hash, s)
	}
	archived, damage := w.stateFolder.LoadModelVector(p.Version, p.Base.Hash, s)
	switch {
	case damage != nil && !store.IsMissingOrDamaged(damage):
		return r, damage
	case damage == nil && data == nil: // the slots are damaged
		return r, errors.Join(w.restoreSlot(r.Run, p.Version, archived), w.setBaseModel(archived))
	case data != nil && damage != nil: // the process before, or the power, has ended before it was archived
		w.unarchivedModel = kept
		return r, w.setBaseModel(data)
	case damage == nil:
		return r, w.setBaseModel(data)
	}
	return w.repairArchivedModel(r, archived, versions, damage, tell)
}

// repairArchivedModel restores the archive's copy of the journaled round's model, which is damaged, from data, if that
// is not nil, or from the journal.
func (w *modelState) repairArchivedModel(r round.Record, data []byte, versions []uint64, damage error,
	tell func(observe.Event)) (
	round.Record, error) {
	p := &r.Plan
	if data == nil && wire.BlobDigest(p.Base.Inline) == p.Base.Hash {
		data = p.Base.Inline
	}
	if errors.As(damage, new(*store.VersionError)) && data == nil {
		return r, w.stateFolder.DecisionError(runs.ModelsDir,
			damage.Error()+", so another version of the program wrote it: finish the run with that one", damage)
	}
	if data == nil {
		return w.fallBackToEarlierModel(r, versions, damage, tell)
	}
	aside, err := w.stateFolder.Models.SetAside(uint64(p.Version))
	if err != nil {
		return r, err
	}
	tell(StateFileRecovered{File: StateModel, Damage: damage, MovedTo: firstName(aside), PreviousVersion: p.Version,
		Version: p.Version})
	file, err := encodeModel(r.Run, p.Version, w.compiledTask, data, p.Base.Hash, w.stateFolder.Origin)
	if err == nil {
		err = w.stateFolder.Models.Put(uint64(p.Version), p.Base.Hash, true, file...)
	}
	if err == nil {
		err = w.restoreSlot(r.Run, p.Version, data)
	}
	return r, errors.Join(err, w.setBaseModel(data))
}

// restoreSlot writes a model of the archive into its slot.
func (w *modelState) restoreSlot(run wire.RunID, version wire.ModelVersion, data []byte) error {
	hash := wire.Digest(wire.BlobDigest(data))
	file, err := encodeModel(run, version, w.compiledTask, data, hash, w.stateFolder.Origin)
	if err != nil {
		return err
	}
	state, err := w.archivedState(w.stateFolder.Models, uint64(version), hash)
	if err != nil && !store.IsMissingOrDamaged(err) {
		return err
	}
	return w.stateFolder.SaveSlot(&runs.SlotModel{Run: run, Version: version, Hash: hash, SafetensorsPieces: file,
		OptimizerState: state})
}

func firstName(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// setBaseModel makes data the base of the round.
func (w *modelState) setBaseModel(data []byte) error {
	w.baseModelBlob = publish.NewBlob(data, w.compiledTask.Schema(wire.KindTraining).Hash())
	return wire.DecodeVector(make([]float32, len(data)/4), data) // all of it is finite
}

// fallBackToEarlierModel ends the journaled round, whose model is lost, and returns a record between it and the next
// round with the newest sound model that is older, or else newer. The updates accepted for the round are lost.
func (w *modelState) fallBackToEarlierModel(r round.Record, versions []uint64, damage error,
	tell func(observe.Event)) (round.Record, error) {
	p := &r.Plan
	s := w.compiledTask.Schema(wire.KindTraining)
	var found *runs.StoredModel
	for _, v := range versions {
		if found != nil && found.Version < uint64(p.Version) && v > uint64(p.Version) {
			break
		}
		if m, err := w.stateFolder.ReadModel(w.stateFolder.Models, v); err == nil && m.MatchesSchema(s) {
			found = m
		}
	}
	if found == nil {
		return r, w.stateFolder.DecisionError(runs.ModelsDir,
			fmt.Sprintf("model %s of the run is lost (%v), and no other model of that run is sound",
				runs.ModelName(r.Run, uint64(p.Version)), damage), damage)
	}
	aside, err := w.stateFolder.Models.SetAside(uint64(p.Version))
	if err != nil {
		return r, err
	}
	data := found.EncodeVector(s)
	version := wire.ModelVersion(found.Version)
	if err := errors.Join(w.restoreSlot(r.Run, version, data), w.setBaseModel(data)); err != nil {
		return r, err
	}
	lost := p.Version
	offset := p.Offset - uint64(lost)*w.stepsPerRound() + uint64(version)*w.stepsPerRound()
	tell(StateFileRecovered{File: StateModel, Damage: damage, MovedTo: firstName(aside), PreviousVersion: lost,
		Version: version})
	r.AbandonLostRound(w.now(), version, round.AbandonModel)
	r.Phase, r.Plan = round.CoordinatorIdle, w.planTraining(version, offset, data)
	r.Participants, r.Edges, r.Block, r.Drawn = nil, nil, 0, 0
	return r, nil
}

var (
	damagedStateFiles = observe.GaugeByLabel("state_damaged",
		"Whether a file of the state folder was damaged or missing at the start (1) or not (0): it was "+
			"recovered, or the run went back to an older model; the log says which.",
		"file", observe.Strings(StateFiles()))
	modelsAhead = observe.Gauge("models_ahead",
		"Versions by which models on disk were newer than the journal at the start, as after an older copy of it "+
			"was put back.")
)

// StateFileRecovered: a file of the state folder was damaged or missing at the start. Its content was recovered, or the
// run continues from another model. If Version is below PreviousVersion, the models between them are trained again.
type StateFileRecovered struct {
	File                     StateFile
	Damage                   error
	MovedTo                  string // where the damaged file is now; empty if the file was missing
	PreviousVersion, Version wire.ModelVersion
}

// Describe implements observe.Event. The condition lasts until the process ends: an operator should know of the disk.
func (e StateFileRecovered) Describe(d *observe.Description) {
	d.Set(damagedStateFiles, 1, string(e.File))
	d.Set(round.ModelVersion, float64(e.Version))
	attributes := []any{"file", e.File, "damage", e.Damage}
	if e.MovedTo != "" {
		attributes = append(attributes, "moved_to", e.MovedTo)
	}
	problem := fmt.Sprintf("model %d in the state folder is lost, so the run continues from model %d",
		e.PreviousVersion, e.Version)
	versions := append(attributes, "lost_version", e.PreviousVersion, "version", e.Version)
	switch {
	case e.Version < e.PreviousVersion:
		d.Log(observe.Error, "model of the run lost, continuing from an older model", versions...)
	case e.Version > e.PreviousVersion:
		d.Log(observe.Error, "model of the run and all older models lost, continuing from a newer model", versions...)
	default:
		d.Log(observe.Error, "damaged or missing state file recovered without loss", attributes...)
		problem = fmt.Sprintf("the %s in the state folder was damaged or missing at the start, and was recovered",
			e.File)
	}
	d.Fail("state "+string(e.File), problem, "check the disk of state_dir")
}

// ModelsNewerThanJournal: at the start there are models that are newer than the journal, which may have been restored
// from an older copy. The models are kept. They are renamed when the run reaches their versions.
type ModelsNewerThanJournal struct{ JournalVersion, Newest wire.ModelVersion }

// Describe implements observe.Event.
func (e ModelsNewerThanJournal) Describe(d *observe.Description) {
	d.Set(modelsAhead, float64(e.Newest-e.JournalVersion))
	d.Log(observe.Warn, "models on disk are newer than the journal", "journal_version", e.JournalVersion,
		"newest_version", e.Newest)
	d.Fail("newer models", fmt.Sprintf("models up to version %d are on disk, but the journal, which may have been "+
		"restored from an older copy, is at version %d", e.Newest, e.JournalVersion),
		fmt.Sprintf("`coordinator run --from %d` begins a run from the newest model", e.Newest))
}
