package e2e

import "github.com/fedmesh/fedmesh/coordinator/runs"

// rounds follows the history of a coordinator: its log leaves out what comes too often.
type rounds struct {
	dir  string
	read int64 // bytes
	all  []runs.HistoryEntry
}

// last reads what is new, and returns the newest round; the zero entry if there is none.
func (r *rounds) last() (newest runs.HistoryEntry) {
	for entry, err := range runs.ReadHistoryFromOffset(r.dir, &r.read) {
		if err != nil {
			break // there is none yet
		}
		r.all = append(r.all, entry)
	}
	if len(r.all) > 0 {
		newest = r.all[len(r.all)-1]
	}
	return newest
}
