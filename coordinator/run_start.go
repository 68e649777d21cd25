package coordinator

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// ErrRunContinues means that the run in the state folder began with Config.StartModel but has a different task from the
// configured one. The run continues with its own task.
var ErrRunContinues = errors.New("continuing the run that started from this model")

// resumeOrBeginRun returns the journal record of the run in the state folder, or of a new run. newRun is true if the
// operator requested the run and it is not announced yet.
func (c *Coordinator) resumeOrBeginRun() (record round.JournalRecord, newRun bool, err error) {
	record, found, err := c.stateFolder.LoadJournalRecord()
	damage := err
	if err != nil && !store.IsDamage(err) {
		return record, false, err
	}
	begins := c.cfg.NewRun
	if !begins && c.cfg.StartModel != "" {
		if begins, err = c.startModelNeedsNewRun(record, found); err != nil {
			return record, false, err
		}
		if !begins && c.mustAdoptTask() {
			return record, false, ErrRunContinues
		}
	}
	newRun = begins || c.cfg.StartModel != "" && record.Round == 0 && !c.stateFolder.Origin.Restandardized
	switch {
	case begins:
		record, err = c.replaceRun(record, found, damage)
	case damage != nil:
		err = c.stateFolder.NewOperatorDecisionError(runs.Journal.Name, damage.Error(), damage)
	case found:
		record, err = c.continueRun(record)
	default:
		if _, newest := c.stateFolder.NewestModel(); newest > 0 {
			return record, newRun, c.stateFolder.NewOperatorDecisionError(runs.Journal.Name,
				"the journal of the run is missing, but the state folder contains models of a run", nil)
		}
		c.stateFolder.RunStartedFresh = true
		record, err = c.planNewRun(round.JournalRecord{}, "")
	}
	return record, newRun, err
}

// startModelNeedsNewRun reports whether Config.StartModel requires a new run. A run that began with this model
// continues, for example after a restart with the same flags.
func (c *Coordinator) startModelNeedsNewRun(record round.JournalRecord, found bool) (bool, error) {
	is := c.stateFolder.Origin
	if !found || is.GivenStartModel == "" {
		return true, nil
	}
	if is.GivenStartModel != c.cfg.StartModel {
		o, _, _, err := c.startModelReader().readNamedModel(c.cfg.StartModel, record.Run)
		if err != nil || o.Digest != is.Digest {
			return true, err
		}
	}
	c.cfg.Logger.Info("continuing the run that started from this model; to start a new run from it, add "+
		"--new-run to --from",
		"model", is.Model, "run", record.Run)
	return false, nil
}

// mustAdoptTask reports whether the run must adopt the configured task. This is the case if the versions differ or
// StartModel selects the current model.
func (c *Coordinator) mustAdoptTask() bool {
	is, want := c.stateFolder.AppliedTaskVersion, c.cfg.TaskVersion
	return is != 0 && want != 0 && is != want || c.cfg.StartModel == StartFromCurrentModel
}

// replaceRun begins a new run in place of the run in the given journal record.
func (c *Coordinator) replaceRun(record round.JournalRecord, found bool, damage error) (round.JournalRecord, error) {
	if found && c.cfg.StartModel == StartFromCurrentModel {
		if err := c.stateFolder.OpenCurrentRunModels(record.Run); err != nil {
			return record, err
		}
		var err error
		if record, err = c.aggregator.RestoreTaskAndModel(record, true, c.deferEventUntilRun); err != nil {
			return record, err
		}
		if err := c.aggregator.ArchivePendingModel(); err != nil { // the new run reads the model from the archive
			return record, err
		}
		if c.cfg.StartModel = ""; record.Plan.BaseModel.IsSet() {
			c.cfg.StartModel = runs.ModelName(record.Run, uint64(record.Plan.BaseModelVersion))
		}
	}
	c.stateFolder.RunStartedFresh = false
	if damage != nil {
		aside, err := c.stateFolder.JournalSlots.SetAside()
		if err != nil {
			return record, err
		}
		c.cfg.Logger.Error("cannot read the journal of the previous run; the models of that run are kept", "err",
			damage,
			"moved_to", aside)
		record = round.JournalRecord{}
	}
	return c.planNewRun(record, "")
}

// continueRun restores the run in the given journal record. If the task has changed or an operator requested a new
// standardisation, it plans the next round again.
func (c *Coordinator) continueRun(record round.JournalRecord) (round.JournalRecord, error) {
	if c.stateFolder.JournalDamage != nil {
		c.cfg.Logger.Warn("the newest copy of the journal is incomplete; using the previous copy", "err",
			c.stateFolder.JournalDamage)
	}
	if err := c.stateFolder.JournalSlots.MakeDurable(); err != nil {
		return record, err
	}
	if err := c.stateFolder.OpenCurrentRunModels(record.Run); err != nil {
		return record, err
	}
	record, err := c.aggregator.RestoreTaskAndModel(record, c.mustAdoptTask(), c.deferEventUntilRun)
	if err == nil && c.mustAdoptTask() {
		record, err = c.adoptConfiguredTask(record)
	}
	c.stateFolder.AppliedTaskVersion = c.cfg.TaskVersion
	if err != nil || !c.isRestandardizationRequested(record) {
		return record, err
	}
	if err := c.aggregator.ArchivePendingModel(); err != nil {
		return record, err
	}
	return c.planNewRun(record, runs.ModelName(record.Run, uint64(record.Plan.BaseModelVersion)))
}

// adoptConfiguredTask plans the next round of the journal record again, with the configured task. It returns an error
// if a round is open.
func (c *Coordinator) adoptConfiguredTask(r round.JournalRecord) (round.JournalRecord, error) {
	if IsRoundOpen(r.Phase) {
		return r, fmt.Errorf("cannot switch to another task while the round is in phase %s", r.Phase)
	}
	r, err := c.aggregator.AdoptConfiguredTask(r)
	if err != nil {
		return r, err
	}
	c.cfg.Logger.Info("switched to the newly configured task", "version", c.cfg.TaskVersion, "run", r.Run, "model",
		r.Plan.BaseModelVersion)
	return r, c.saveFirstRecord(r)
}

// planNewRun plans a new run whose id is larger than the ids of all earlier runs. If again is not empty, it names the
// model with which the run continues in a new standardisation.
func (c *Coordinator) planNewRun(before round.JournalRecord, again string) (round.JournalRecord, error) {
	stored, err := c.stateFolder.StoredRunIDs()
	if err != nil {
		return round.JournalRecord{}, err
	}
	newest := before.Run
	for _, run := range stored {
		newest = max(newest, run)
	}
	present := before.Run // a newer folder belongs to a run that had not begun when the process was killed
	if present == 0 {
		present = newest
	}
	record := round.JournalRecord{Run: max(wire.RunID(c.ownerLoop.Now().UnixMilli()), newest+1),
		Phase:   round.CoordinatorIdle,
		Rollout: before.Rollout}
	t, model := c.cfg.Task, []byte(nil)
	switch {
	case again != "":
		c.stateFolder.Origin, err = c.originForRestandardizedRun(again)
	case c.cfg.StartModel != "":
		c.stateFolder.Origin, model, t, err = c.startModelReader().readNamedModel(c.cfg.StartModel, present)
	case c.cfg.InitialModelPath != "" && !t.External.IsEnabled():
		c.stateFolder.Origin, model, t, err = c.startModelReader().readInitialModel()
	default:
		c.stateFolder.Origin = runs.RunOrigin{}
	}
	if err != nil {
		return record, err
	}
	if from := c.stateFolder.Origin.Model; from != "" {
		c.cfg.Logger.Info("starting a run from a model", "model", from, "run", record.Run,
			"new_statistics_round", again != "")
	}
	if err := c.stateFolder.OpenCurrentRunModels(record.Run); err != nil {
		return record, err
	}
	if record.Plan, err = c.aggregator.BeginRun(record.Run, t, model); err != nil {
		return record, err
	}
	if model != nil { // an operator has chosen the model
		record.Rollout = rollout.State{}
		record.Rollout.ReleaseModel(record.NewestModel())
	}
	err = c.stateFolder.RemoveSpoolsBut(0)
	if err == nil {
		err = c.saveFirstRecord(record)
	}
	if err == nil && c.cfg.KeepRuns > 0 {
		err = c.removeModelsOfOldRuns(stored, &record.Rollout)
	}
	return record, err
}

// saveFirstRecord writes a newly planned journal record to disk, with the version of the configured task.
func (c *Coordinator) saveFirstRecord(r round.JournalRecord) error {
	c.stateFolder.AppliedTaskVersion = c.cfg.TaskVersion
	// The journal must be saved before old models are removed and before the retained announcement is read.
	if err := c.stateFolder.SaveJournalRecord(r); err != nil {
		return err
	}
	return c.aggregator.ArchivePendingModel()
}

// removeModelsOfOldRuns removes the models of earlier runs. It keeps the newest Config.KeepRuns trained runs, the run
// of the start model, and runs with rolled-out models.
func (c *Coordinator) removeModelsOfOldRuns(stored []wire.RunID, s *rollout.State) error {
	kept := 0
	for _, run := range slices.Backward(stored) {
		models, err := c.stateFolder.OpenModelsOfRun(run)
		if err != nil {
			return err
		}
		versions, err := models.Versions()
		if err != nil {
			return err
		}
		trained := len(versions) > 0 && versions[len(versions)-1] > 0
		if trained && kept < c.cfg.KeepRuns {
			kept++
			continue
		}
		if source, _, ok := runs.ParseModelName(c.stateFolder.Origin.Model, 0); ok && run == source ||
			len(rolledOutVersions(s, run)) > 0 {
			continue
		}
		if err := c.stateFolder.RemoveRunModels(run); err != nil {
			return err
		}
		c.cfg.Logger.Info("models of an earlier run removed (policy.keep_runs)", "run", run,
			"models", len(versions), "keep_runs", c.cfg.KeepRuns)
	}
	return nil
}
