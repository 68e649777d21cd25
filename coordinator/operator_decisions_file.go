package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
)

// OperatorDecisions is the decisions of operators about the learning of a federation. Its file is in the state folder.
// The journal has the version of the task of the present round.
type OperatorDecisions struct {
	Task AppliedTask
	// NextTask replaces Task when the present round is over; nil if no task waits.
	NextTask        *AppliedTask          `json:"Next,omitempty"`
	OperatorCommand round.OperatorCommand `json:"Course"`
}

// AppliedTask is a task that was applied, with the configuration of its rounds.
type AppliedTask struct {
	Version   uint64    // 1 is the first
	AppliedAt time.Time `json:"At"`
	TaskYAML  []byte    `json:"Text"` // the keys as YAML; the coordinator itself does not read it
	// NewRun begins a new run, with the model From or, if that is empty, with an initial one.
	NewRun     bool   `json:",omitempty"`
	StartModel string `json:"From,omitempty"` // as Config.StartModel
	// AbandonsRound abandons the present round; else the task waits for its end.
	AbandonsRound bool `json:"Now,omitempty"`
}

// withoutOneTimeOptions returns the task without the options that hold for one start.
func (a AppliedTask) withoutOneTimeOptions() AppliedTask {
	a.NewRun, a.StartModel, a.AbandonsRound = false, "", false
	return a
}

// ApplyNextTask replaces Task by Next.
func (c *OperatorDecisions) ApplyNextTask() {
	c.Task, c.NextTask = c.NextTask.withoutOneTimeOptions(), nil
}

// LoadOperatorDecisions returns the decisions, and false if there are none: then the version of the task is the
// journal's. If the journal has the version of Next, Next is applied.
func LoadOperatorDecisions(dir string) (OperatorDecisions, bool, error) {
	d := runs.NewStateFolder(store.LocalDisk, dir)
	_, _, unread := d.LoadJournalRecord()
	found, err := d.ControlSlots.Load(nil)
	if errors.Is(err, store.ErrNoRecord) {
		return OperatorDecisions{Task: AppliedTask{Version: d.AppliedTaskVersion}}, false, nil
	}
	var c OperatorDecisions
	if err == nil {
		err = d.ParseJSONFile(runs.Control, found.Body, &c)
	}
	switch {
	case store.IsDamage(err):
		path := d.FilePath(runs.Control.Name)
		return c, false, &runs.StateError{Path: path, Problem: err.Error(), Err: err,
			Remedy: fmt.Sprintf("remove %s.a and .b: then %s", path, runs.Control.LossConsequence)}
	case err != nil:
		return c, false, fmt.Errorf("state folder %s: %w", dir, err)
	}
	if unread == nil && c.NextTask != nil && c.NextTask.Version == d.AppliedTaskVersion {
		c.ApplyNextTask() // the process ended before it could save that
	}
	return c, true, nil
}

// Save writes the decisions to the state folder.
func (c *OperatorDecisions) Save(dir string) error {
	body, err := json.Marshal(c)
	if err == nil {
		d := runs.NewStateFolder(store.LocalDisk, dir)
		if _, err = d.ControlSlots.Load(nil); errors.Is(err, store.ErrNoRecord) || store.IsDamage(err) {
			err = nil
		}
		if err == nil {
			err = d.ControlSlots.WriteAndProtect(body)
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
	record, found, err := runs.NewStateFolder(store.LocalDisk, dir).LoadJournalRecord()
	if err != nil {
		return false, fmt.Errorf("state folder %s: %w", dir, err)
	}
	return !found || !IsRoundOpen(record.Phase), nil
}

// IsRoundOpen reports whether a round is open in a phase.
func IsRoundOpen(p round.CoordinatorPhase) bool {
	return p == round.CoordinatorCollecting || p == round.CoordinatorClosing
}
