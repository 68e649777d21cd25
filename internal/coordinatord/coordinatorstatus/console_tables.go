package coordinatorstatus

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/internal/console"
	"github.com/fedmesh/fedmesh/wire"
)

// StatusTable returns the status as a table with one row, for the console.
func (v *StatusTracker) StatusTable() console.Table {
	return console.Table{Name: "status", Rows: func(yield func(string, any)) error {
		s := *v.Status().(*coordinatorStatus)
		s.GeneratedAt = time.Time{} // otherwise the row would change every second
		yield("status", &s)
		return nil
	}}
}

// DevicesTable returns the table of devices for the console. The function enrolled returns the ids in the list of
// agents.
func (v *StatusTracker) DevicesTable(enrolled func() ([]wire.AgentID, error)) console.Table {
	return console.Table{Name: "devices", Rows: func(yield func(string, any)) error {
		ids, err := enrolled()
		if err != nil {
			return err
		}
		for part := range slices.Chunk(ids, 1000) { // release the lock in between, since rounds wait for it
			for _, d := range v.describeDevices(part, nil).Devices {
				yield(d.Agent, d)
			}
		}
		return nil
	}}
}
