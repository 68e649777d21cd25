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

// OperatorControl is what people have decided about a federation's learning. It stands in the state folder beside the
// journal, which says under which task its round is held.
type OperatorControl struct {
	Task AppliedTask
	// Next takes its place when the round under way is over; nil if nothing waits.
	Next   *AppliedTask `json:",omitempty"`
	Course round.RunCourse
}

// AppliedTask is a task that was applied, with how its rounds are held.
type AppliedTask struct {
	Version uint64 // 1 is the first
	At      time.Time
	Text    []byte // the keys as YAML; only who applies them reads it
	// NewRun begins a new run, from the model From or, if that is empty, from an initial one.
	NewRun bool   `json:",omitempty"`
	From   string `json:",omitempty"` // as Config.From
	// Now gives up the round under way; else the task waits for its end.
	Now bool `json:",omitempty"`
}

const (
	controlVersion = 1
	maxControl     = 64 << 20
)

// StartFromCurrentModel names, in Config.From, the present model of the run in the state folder.
const StartFromCurrentModel = "present"

// ErrRunContinues is returned by New when the run in the state folder has begun with the model that Config.From names,
// and another task than the run's is configured: it goes on with its own.
var ErrRunContinues = errors.New("the run that began from this model goes on")

// ErrUnlisted says that an agent is not in the list of who may take part.
var ErrUnlisted = errors.New("not in the list of agents")

// ErrStoppedBetweenRounds is returned by Run when the coordinator ends between two rounds, as StopBetweenRounds asks
// for.
var ErrStoppedBetweenRounds = errors.New("ended between two rounds")

// withoutOneTimeOptions returns the task without what was asked for once: a new run has begun.
func (a AppliedTask) withoutOneTimeOptions() AppliedTask {
	a.NewRun, a.From, a.Now = false, "", false
	return a
}

// ApplyNextTask has Next take the place of Task.
func (c *OperatorControl) ApplyNextTask() { c.Task, c.Next = c.Next.withoutOneTimeOptions(), nil }

// LoadControl returns what was decided, and false if nothing was: then the version of the task is the journal's. What
// the journal says has already come about counts as in effect.
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
		c.ApplyNextTask() // the process has ended before it could write so
	}
	return c, true, nil
}

// Save makes the decision count.
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

// IsBetweenRounds reports whether the journal in a state folder stands between two rounds, so that another task can
// take over.
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

// SetCourse has the run go on, pause or stop. A round under way goes on to its end; now gives it up instead. The error
// is that the owner's goroutine has not been met before ctx ended.
func (c *Coordinator) SetCourse(ctx context.Context, course round.RunCourse, now bool) error {
	return c.runOnOwner(ctx, func() { c.applyCourse(course, now) })
}

// StopBetweenRounds has Run return ErrStoppedBetweenRounds when the round under way is over; now gives it up.
func (c *Coordinator) StopBetweenRounds(ctx context.Context, now bool) error {
	return c.runOnOwner(ctx, func() {
		c.stopsBetweenRounds = true
		c.applyCourse(round.CoursePause, now)
	})
}

// runOnOwner has the owner do something, and waits until it is done.
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

// CheckStartModel returns why no run of the configured task can begin with the model that cfg.From names; nil if one
// can.
func CheckStartModel(cfg Config) error {
	d := runs.NewFolder(store.Machine, cfg.Dir)
	record, found, err := d.LoadRecord()
	if err != nil {
		return err
	}
	c := &Coordinator{cfg: cfg, stateFolder: d}
	newest := record.Run
	if cfg.StartModel == StartFromCurrentModel {
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
		c.cfg.StartModel = runs.ModelName(newest, versions[len(versions)-1])
	}
	if _, _, _, err = c.readOrigin(c.cfg.StartModel, newest); err != nil {
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

// stopErrorBetweenRounds is ErrStoppedBetweenRounds when that was asked for and no round is under way.
func (c *Coordinator) stopErrorBetweenRounds() error {
	if c.stopsBetweenRounds && !IsRoundOpen(c.machine.Record().Phase) {
		return ErrStoppedBetweenRounds
	}
	return nil
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

// startFromCurrentModel has the new run begin with the present model of the run before, whose record is r: it must be
// in the archive for that.
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

// saveAdoptedRecord makes a record that was planned anew count, and with it the task under which it stands.
func (c *Coordinator) saveAdoptedRecord(r round.Record) error {
	c.stateFolder.AppliedTaskVersion = c.cfg.TaskVersion
	// before the models of other runs are removed; the machine starts after the announcement guard has read the broker
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
