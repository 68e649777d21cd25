package runs

import (
	"errors"
	"fmt"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// OpenModelsOfCurrentRun opens the models of the run in a state folder, for reading, and
// tells where the run stands. The daemon may be running. Where the journal is lost or damaged it opens those of the
// newest run; the record then has only the run.
func OpenModelsOfCurrentRun(dir string) (*store.ModelFolder, round.JournalRecord, error) {
	d := NewStateFolder(store.LocalDisk, dir)
	record, found, err := d.LoadJournalRecord()
	if err == nil && found {
		err = d.OpenCurrentRunModels(record.Run)
	} else if runs, _ := d.StoredRunIDs(); len(runs) > 0 {
		record.Run = runs[len(runs)-1]
		err = d.OpenCurrentRunModels(record.Run)
	} else if err == nil {
		err = errors.New("no run has been begun there")
	}
	if err != nil {
		return nil, record, fmt.Errorf("state folder %s: %w", dir, err)
	}
	return d.CurrentRunModels, record, nil
}

// OpenModelsOfRun opens the models of one run in a state folder, for reading.
func OpenModelsOfRun(dir string, run wire.RunID) (*store.ModelFolder, error) {
	d := NewStateFolder(store.LocalDisk, dir)
	models, err := d.OpenModelsOfRun(run)
	if err != nil {
		return nil, fmt.Errorf("state folder %s: %w", dir, err)
	}
	return models, nil
}

// RunInfo is a run that has models in a state folder.
type RunInfo struct {
	Run           wire.RunID `json:"run"`
	Models        int        `json:"models"` // undamaged ones
	NewestVersion uint64     `json:"newest"` // version
	TaskName      string     `json:"task"`   // its name
	StartModel    string     `json:"from,omitempty"`
}

// Runs returns the runs that have models in a state folder, in the order in which they began.
func ListStoredRuns(dir string) ([]RunInfo, error) {
	d := NewStateFolder(store.LocalDisk, dir)
	runs, err := d.StoredRunIDs()
	all := []RunInfo{}
	for _, run := range runs {
		var models *store.ModelFolder
		if models, err = d.OpenModelsOfRun(run); err != nil {
			break
		}
		list, _ := models.List() // with an error, those that are undamaged
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
