package runs

import (
	"errors"
	"fmt"

	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// RaiseEpoch raises the epoch of the run in a state folder. From the next start, agents follow the run even if they
// have followed a later announcement before. RaiseEpoch returns the new position of the run. No daemon may use the
// folder.
func RaiseEpoch(dir string) (wire.AnnouncementPosition, error) {
	d := NewStateFolder(store.LocalDisk, dir)
	record, found, err := d.LoadJournalRecord()
	if err == nil && !found {
		err = errors.New("the state folder contains no run to restore")
	}
	if err == nil {
		d.Epoch++
		err = d.SaveJournalRecord(record)
	}
	if err != nil {
		return wire.AnnouncementPosition{}, fmt.Errorf("state folder %s: %w", dir, err)
	}
	return PositionOfRecord(wire.FirstRootVersion, d.Epoch, record), nil
}
