package coordinator

import (
	"errors"
	"fmt"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
)

// OpenModels opens the models of the run in a state folder, for reading, and
// tells where the run stands. The daemon may be running.
func OpenModels(dir string) (*store.Models, round.Record, error) {
	d := &disk{dir: dir}
	record, found, err := d.loadRecord()
	if err == nil && !found {
		err = errors.New("no run has been begun there")
	}
	if err == nil {
		err = d.openModels(record.Run)
	}
	if err != nil {
		return nil, record, fmt.Errorf("state folder %s: %w", dir, err)
	}
	return d.models, record, nil
}
