package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
)

// OperatorControl is the decisions of operators about the learning of a federation. Its file is in the state folder.
// The journal has the version of the task of the present round.
type OperatorControl struct {
	Task AppliedTask
	// Next replaces Task when the present round is over; nil if no task waits.
	Next   *AppliedTask `json:",omitempty"`
	Course round.RunCourse
}

// AppliedTask is a task that was applied, with the configuration of its rounds.
type AppliedTask struct {
	Version uint64 // 1 is the first
	At      time.Time
	Text    []byte // the keys as YAML; the coordinator itself does not read it
	// NewRun begins a new run, with the model From or, if that is empty, with an initial one.
	NewRun bool   `json:",omitempty"`
	From   string `json:",omitempty"` // as Config.StartModel
	// Now abandons the present round; else the task waits for its end.
	Now bool `json:",omitempty"`
}

const (
	controlVersion = 1
	maxControl     = 64 << 20
)

// StartFromCurrentModel is the value of Config.StartModel for the present model of the run in the state folder.
const StartFromCurrentModel = "present"

// ErrRunContinues is returned by New if the run in the state folder began with the model that Config.StartModel names,
// and the configured task differs from the run's: the run continues with its own task.
var ErrRunContinues = errors.New("the run that began from this model goes on")

// ErrUnlisted means that an agent is not in the list of agents.
var ErrUnlisted = errors.New("not in the list of agents")

// ErrStoppedBetweenRounds is returned by Run after StopBetweenRounds, when no round is open.
var ErrStoppedBetweenRounds = errors.New("ended between two rounds")

// withoutOneTimeOptions returns the task without the options that hold for one start.
func (a AppliedTask) withoutOneTimeOptions() AppliedTask {
	a.NewRun, a.From, a.Now = false, "", false
	return a
}

// ApplyNextTask replaces Task by Next.
func (c *OperatorControl) ApplyNextTask() { c.Task, c.Next = c.Next.withoutOneTimeOptions(), nil }

// LoadControl returns the decisions, and false if there are none: then the version of the task is the journal's. If the
// journal has the version of Next, Next is applied.
func LoadControl(dir string) (OperatorControl, bool, error) {
	d := runs.NewFolder(store.Machine, dir)
	_, _, unread := d.LoadRecord()
	found, err := d.ControlSlots.Load(maxControl, nil)
	switch {
	case errors.Is(err, store.ErrNoRecord):
		return OperatorControl{Task: AppliedTask{Version: d.AppliedTaskVersion}}, false, nil
	case err == nil && found.Version != controlVersion:
		err = &store.VersionError{Path: d.Path(runs.ControlFile), FileVersion: found.Version,
			SupportedVersion: controlVersion}
	}
	var c OperatorControl
	if err == nil {
		err = d.ParseJSONFile(runs.ControlFile, found.Body, &c)
	}
	switch {
	case store.IsDamage(err):
		return c, false, &runs.StateError{Path: d.Path(runs.ControlFile), Problem: err.Error(), Remedy: "remove " +
			d.Path(runs.ControlFile) + ".a and .b: the configuration's task then counts as the applied one", Err: err}
	case err != nil:
		return c, false, fmt.Errorf("state folder %s: %w", dir, err)
	}
	if unread == nil && c.Next != nil && c.Next.Version == d.AppliedTaskVersion {
		c.ApplyNextTask() // the process ended before it could save that
	}
	return c, true, nil
}

// Save writes the decisions to the state folder.
func (c *OperatorControl) Save(dir string) error {
	body, err := json.Marshal(c)
	if err == nil {
		d := runs.NewFolder(store.Machine, dir)
		if _, err = d.ControlSlots.Load(maxControl, nil); errors.Is(err, store.ErrNoRecord) || store.IsDamage(err) {
			err = nil
		}
		if err == nil {
			err = d.ControlSlots.WriteAndProtect(controlVersion, body)
		}
	}
	if err != nil {
		return fmt.Errorf("state folder %s: %w", filepath.Clean(dir), err)
	}
	return nil
}

// IsBetweenRounds reports whether no round is open according to the journal in a state folder, so that another task can
// be adopted.
func IsBetweenRounds(dir string) (bool, error) {
	record, found, err := runs.NewFolder(store.Machine, dir).LoadRecord()
	if err != nil {
		return false, fmt.Errorf("state folder %s: %w", dir, err)
	}
	return !found || !IsRoundOpen(record.Phase), nil
}

// IsRoundOpen reports whether a round is open in a phase.
func IsRoundOpen(p round.CoordinatorPhase) bool {
	return p == round.CoordinatorCollecting || p == round.CoordinatorClosing
}

// SetCourse continues, pauses or stops the run. An open round continues to its end, unless now is true: then it is
// abandoned. SetCourse returns an error if the owner's goroutine has not responded before ctx ended.
func (c *Coordinator) SetCourse(ctx context.Context, course round.RunCourse, now bool) error {
	return c.runOnOwner(ctx, func() { c.applyCourse(course, now) })
}

// StopBetweenRounds has Run return ErrStoppedBetweenRounds when the open round is over. now abandons the round.
func (c *Coordinator) StopBetweenRounds(ctx context.Context, now bool) error {
	return c.runOnOwner(ctx, func() {
		c.stopsBetweenRounds = true
		c.applyCourse(round.CoursePause, now)
	})
}

// runOnOwner calls do on the owner's goroutine, and waits until it has returned.
func (c *Coordinator) runOnOwner(ctx context.Context, do func()) error {
	done := make(chan struct{})
	err := c.ownerLoop.RunOnLoopContext(ctx, func() {
		defer close(done)
		do()
	})
	if err == nil {
		select {
		case <-done:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		return fmt.Errorf("coordinator: the command was not carried out in time: %w", err)
	}
	return nil
}

// CheckStartModel returns an error if no run of the configured task can begin with the model that cfg.StartModel names.
func CheckStartModel(cfg Config) error {
	d := runs.NewFolder(store.Machine, cfg.Dir)
	record, found, err := d.LoadRecord()
	if err != nil {
		return err
	}
	newest, start := record.Run, cfg.StartModel
	if start == StartFromCurrentModel {
		if !found || !record.Plan.Base.Present() {
			return errors.New("the run has no model yet; begin one from an initial model")
		}
		models, err := d.ModelsOf(newest)
		if err != nil {
			return err
		}
		versions, err := models.Versions() // the present one may not be in the archive yet; they have one shape
		if err != nil || len(versions) == 0 {
			return errors.Join(err, errors.New("the run has no model in the archive yet; try again"))
		}
		start = runs.ModelName(newest, versions[len(versions)-1])
	}
	if _, _, _, err = (startModels{&cfg, d}).named(start, newest); err != nil {
		var state *runs.StateError
		if errors.As(err, &state) {
			return fmt.Errorf("%s: %s", cfg.StartModel, state.Problem)
		}
	}
	return err
}

func (c *Coordinator) applyCourse(course round.RunCourse, now bool) {
	if c.stopsBetweenRounds {
		course = round.CoursePause
	}
	c.stepMachine(round.CourseChanged{Course: course, AbandonsRound: now})
}

// adoptConfiguredTask plans the record's next round in the configured task, which differs from the run's.
func (c *Coordinator) adoptConfiguredTask(r round.Record) (round.Record, error) {
	if IsRoundOpen(r.Phase) {
		return r, fmt.Errorf("another task cannot take over in phase %s", r.Phase)
	}
	r, err := c.aggregator.AdoptTask(r)
	if err != nil {
		return r, err
	}
	c.cfg.Logger.Info("another task takes over", "version", c.cfg.TaskVersion, "run", r.Run, "model", r.Plan.Version)
	return r, c.saveAdoptedRecord(r)
}

// mustAdoptTask reports whether the journal's run has learned under another applied task than the configured one, or
// leaves its model to a new run.
func (c *Coordinator) mustAdoptTask() bool {
	is, want := c.stateFolder.AppliedTaskVersion, c.cfg.TaskVersion
	return is != 0 && want != 0 && is != want || c.cfg.StartModel == StartFromCurrentModel
}

// startFromCurrentModel sets Config.StartModel to the present model of the record's run, and archives that model, so
// that a new run can begin with it.
func (c *Coordinator) startFromCurrentModel(r round.Record) (round.Record, error) {
	if err := c.stateFolder.OpenCurrentRun(r.Run); err != nil {
		return r, err
	}
	r, err := c.aggregator.Restore(r, true, c.queueEvent)
	if err != nil {
		return r, err
	}
	if err := c.aggregator.ArchivePending(); err != nil {
		return r, err
	}
	if c.cfg.StartModel = ""; r.Plan.Base.Present() {
		c.cfg.StartModel = runs.ModelName(r.Run, uint64(r.Plan.Version))
	}
	return r, nil
}

// saveAdoptedRecord writes a newly planned record to the journal, with the version of the configured task.
func (c *Coordinator) saveAdoptedRecord(r round.Record) error {
	c.stateFolder.AppliedTaskVersion = c.cfg.TaskVersion
	// before the models of other runs are removed, and before the guard has read the announcement at the broker
	if err := c.stateFolder.SaveRecord(r); err != nil {
		return err
	}
	return c.aggregator.ArchivePending()
}

// Backup writes a backup of the state folder (runs.RestoreBackup). The coordinator continues meanwhile.
func (c *Coordinator) Backup(ctx context.Context, w io.Writer) error {
	var slots []runs.BackupFile
	var failed error
	err := c.runOnOwner(ctx, func() { slots, failed = c.stateFolder.FilesInSlots() })
	if err == nil {
		err = failed
	}
	if err == nil {
		err = c.stateFolder.WriteBackup(w, slots)
	}
	if err != nil {
		return fmt.Errorf("backup of %s: %w", c.stateFolder.Dir, err)
	}
	return nil
}
