package runs

import (
	"errors"
	"fmt"

	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// RaiseEpoch raises the epoch of the run in a state folder, so that agents obey it from the next start on, whatever
// later place they have obeyed before. It returns where the run then stands. No daemon may be using the folder.
func RaiseEpoch(dir string) (wire.AnnouncementPosition, error) {
	d := NewStateFolder(store.LocalDisk, dir)
	record, found, err := d.LoadJournalRecord()
	if err == nil && !found {
		err = errors.New("no run has been begun there, so there is none to restore")
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
