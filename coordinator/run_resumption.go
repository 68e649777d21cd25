package coordinator

import (
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

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
		if !begins && c.mustAdoptTask() {
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
	record, err = c.aggregator.Restore(record, c.mustAdoptTask(), c.queueEvent)
	if err == nil && c.mustAdoptTask() {
		record, err = c.adoptConfiguredTask(record)
	}
	c.stateFolder.AppliedTaskVersion = c.cfg.TaskVersion
	if err == nil && c.restandardizeRequested(record) {
		if err := c.aggregator.ArchivePending(); err != nil {
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
	if record.Plan, err = c.aggregator.BeginRun(record.Run, t, model); err != nil {
		return record, err
	}
	if model != nil { // a person has chosen the model
		record.Rollout = rollout.State{}
		record.Rollout.Release(record.NewestModel())
	}
	err = c.stateFolder.RemoveSpoolsBut(0)
	if err == nil {
		err = c.saveAdoptedRecord(record)
	}
	if err == nil && c.cfg.KeepRuns > 0 {
		err = c.removeOldRuns(stored, &record.Rollout)
	}
	return record, err
}
