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

// OperatorDecisions contains the operator's decisions about tasks and rounds. It is stored in the state folder. Which
// task is current is decided by the version in the journal.
type OperatorDecisions struct {
	Task AppliedTask
	// NextTask replaces Task after the current round; nil if no task is pending.
	NextTask        *AppliedTask          `json:"Next,omitempty"`
	OperatorCommand round.OperatorCommand `json:"Course"`
}

// AppliedTask is a task that an operator applied, with the configuration of its rounds.
type AppliedTask struct {
	Version   uint64    // version number, starting at 1
	AppliedAt time.Time `json:"At"`
	TaskYAML  []byte    `json:"Text"` // configuration keys as YAML, which the coordinator does not parse
	// NewRun starts a new run with the model StartModel, or with an initial model if that is empty.
	NewRun     bool   `json:",omitempty"`
	StartModel string `json:"From,omitempty"` // name of the start model; see Config.StartModel
	// AbandonsRound is true if the current round must be abandoned. Otherwise the task waits for the end of the round.
	AbandonsRound bool `json:"Now,omitempty"`
}

// withoutOneTimeOptions returns the task without the options that apply to one start only.
func (a AppliedTask) withoutOneTimeOptions() AppliedTask {
	a.NewRun, a.StartModel, a.AbandonsRound = false, "", false
	return a
}

// ApplyNextTask replaces Task with NextTask.
func (c *OperatorDecisions) ApplyNextTask() {
	c.Task, c.NextTask = c.NextTask.withoutOneTimeOptions(), nil
}

// LoadOperatorDecisions loads the decisions from a state folder. It returns false if no decisions are stored; the task
// version in the journal is then used. If the journal contains the version of NextTask, NextTask replaces Task.
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
			Remedy: fmt.Sprintf("remove the files %s.a and .b; after that, %s", path, runs.Control.LossConsequence)}
	case err != nil:
		return c, false, fmt.Errorf("state folder %s: %w", dir, err)
	}
	if unread == nil && c.NextTask != nil && c.NextTask.Version == d.AppliedTaskVersion {
		c.ApplyNextTask() // The process ended before saving the applied task.
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

// IsBetweenRounds reports whether the journal in a state folder has no open round, so that another task can be adopted.
func IsBetweenRounds(dir string) (bool, error) {
	record, found, err := runs.NewStateFolder(store.LocalDisk, dir).LoadJournalRecord()
	if err != nil {
		return false, fmt.Errorf("state folder %s: %w", dir, err)
	}
	return !found || !IsRoundOpen(record.Phase), nil
}

// IsRoundOpen reports whether a round is open in the given phase.
func IsRoundOpen(p round.CoordinatorPhase) bool {
	return p == round.CoordinatorCollecting || p == round.CoordinatorClosing
}
