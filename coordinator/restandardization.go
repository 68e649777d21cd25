package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// restandardizeRequest requests a new standardisation of the run with the given id. The coordinator ignores the request
// in later runs, so that it executes the request once even after a crash.
type restandardizeRequest struct{ Run wire.RunID }

// RequestRestandardization requests a new standardisation of the run in a state folder. At its next start, the
// coordinator begins a new run with a statistics round and continues with the newest model. The daemon may be running.
// RequestRestandardization returns the id of the run that will end.
func RequestRestandardization(dir string) (wire.RunID, error) {
	d := runs.NewStateFolder(store.LocalDisk, dir)
	record, found, err := d.LoadJournalRecord()
	switch {
	case err != nil:
		return 0, err
	case !found:
		return 0, fmt.Errorf("state folder %s contains no run", dir)
	case record.Plan.Kind == wire.KindStatistics:
		return 0, fmt.Errorf("state folder %s: the statistics round of the run is still in progress", dir)
	}
	body, err := json.Marshal(restandardizeRequest{record.Run})
	if err != nil {
		return 0, err
	}
	return record.Run, d.Disk.SaveStateFile(dir, runs.RestandardizeRequest, body)
}

// isRestandardizationRequested reports whether a new standardisation of the record's run was requested.
func (c *Coordinator) isRestandardizationRequested(record round.JournalRecord) bool {
	var r restandardizeRequest
	body, err := c.cfg.Disk.LoadStateFile(c.cfg.StateDir, runs.RestandardizeRequest)
	if errors.Is(err, store.ErrNoRecord) {
		return false
	}
	if err == nil {
		err = c.stateFolder.ParseJSONFile(runs.RestandardizeRequest, body, &r)
	}
	switch {
	case err != nil:
		c.cfg.Logger.Error(
			"cannot read the stored request to recompute the column means and scales; run `coordinator "+
				"restandardize` again", "err", err)
	case r.Run != record.Run || record.Plan.Kind != wire.KindTraining:
		// The request is ignored, because it was executed already or another run has begun since.
	case !c.cfg.Standardize:
		c.cfg.Logger.Error(
			"recomputation of the column means and scales is requested, but task.standardize is false: set it to "+
				"true, or remove the request file",
			"file", c.stateFolder.FilePath(runs.RestandardizeRequest.Name))
	default:
		return true
	}
	return false
}

// originForRestandardizedRun returns the origin of a run that continues with a model of the previous run in a new
// standardisation. It keeps the StartModel of the previous run.
func (c *Coordinator) originForRestandardizedRun(model string) (runs.RunOrigin, error) {
	given := c.stateFolder.Origin.GivenStartModel
	o, _, _, err := c.startModelReader().readNamedModel(model, 0)
	var refused *runs.StateError
	if errors.As(err, &refused) {
		refused.Path = "restandardisation of model " + model
		refused.Remedy = fmt.Sprintf("remove %s to continue with the current standardisation",
			c.stateFolder.FilePath(runs.RestandardizeRequest.Name))
	}
	o.GivenStartModel, o.Restandardized = given, true
	return o, err
}
