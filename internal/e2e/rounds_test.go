package e2e

import "github.com/fedmesh/fedmesh/coordinator/runs"

// rounds reads the history of a coordinator. It does not read the log, because the log omits frequent messages.
type rounds struct {
	dir  string
	read int64 // number of bytes read so far
	all  []runs.HistoryEntry
}

// last reads the new entries of the history and returns the newest entry. It returns the zero entry if the history is
// empty.
func (r *rounds) last() (newest runs.HistoryEntry) {
	for entry, err := range runs.ReadHistoryFromOffset(r.dir, &r.read) {
		if err != nil {
			break // the file does not exist yet
		}
		r.all = append(r.all, entry)
	}
	if len(r.all) > 0 {
		newest = r.all[len(r.all)-1]
	}
	return newest
}
