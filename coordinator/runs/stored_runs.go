package runs

import (
	"errors"
	"fmt"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// OpenModelsOfCurrentRun opens the models of the current run for reading and returns the run's record. The daemon may
// be running. If the journal is lost or damaged, it opens the newest run, and only the Run field of the record is set.
func OpenModelsOfCurrentRun(dir string) (*store.ModelFolder, round.JournalRecord, error) {
	d := NewStateFolder(store.LocalDisk, dir)
	record, found, err := d.LoadJournalRecord()
	if err == nil && found {
		err = d.OpenCurrentRunModels(record.Run)
	} else if runs, _ := d.StoredRunIDs(); len(runs) > 0 {
		record.Run = runs[len(runs)-1]
		err = d.OpenCurrentRunModels(record.Run)
	} else if err == nil {
		err = errors.New("the state folder contains no run")
	}
	if err != nil {
		return nil, record, fmt.Errorf("state folder %s: %w", dir, err)
	}
	return d.CurrentRunModels, record, nil
}

// OpenModelsOfRun opens the models of a run in a state folder for reading.
func OpenModelsOfRun(dir string, run wire.RunID) (*store.ModelFolder, error) {
	d := NewStateFolder(store.LocalDisk, dir)
	models, err := d.OpenModelsOfRun(run)
	if err != nil {
		return nil, fmt.Errorf("state folder %s: %w", dir, err)
	}
	return models, nil
}

// RunInfo describes a run with models in a state folder.
type RunInfo struct {
	Run           wire.RunID `json:"run"`
	Models        int        `json:"models"` // number of intact models
	NewestVersion uint64     `json:"newest"` // version of the newest model
	TaskName      string     `json:"task"`   // name of the task
	StartModel    string     `json:"from,omitempty"`
}

// ListStoredRuns returns the runs with models in a state folder, oldest first.
func ListStoredRuns(dir string) ([]RunInfo, error) {
	d := NewStateFolder(store.LocalDisk, dir)
	runs, err := d.StoredRunIDs()
	all := []RunInfo{}
	for _, run := range runs {
		var models *store.ModelFolder
		if models, err = d.OpenModelsOfRun(run); err != nil {
			break
		}
		list, _ := models.List() // after an error, list contains the intact models
		r := RunInfo{Run: run, Models: len(list)}
		if n := len(list); n > 0 {
			m := &list[n-1]
			r.NewestVersion, r.TaskName, r.StartModel = m.Version, m.Metadata["task"], m.Metadata["from"]
		}
		all = append(all, r)
	}
	if err != nil {
		return nil, fmt.Errorf("state folder %s: %w", dir, err)
	}
	return all, nil
}
