package audit

import (
	"encoding/json"
	"path/filepath"
	"slices"

	"github.com/fedmesh/fedmesh/store"
)

// NewestEntries returns at most the given number of entries of the log in a state folder, newest first. It does not
// verify them.
func NewestEntries(disk store.Disk, state string, count int) ([]Entry, error) {
	all := []Entry{}
	names, err := FileNames(disk, state)
	if err != nil {
		return all, err
	}
	for _, name := range slices.Backward(names) {
		for line, err := range disk.NewestHistoryLines(filepath.Join(state, Folder, name)) {
			var e Entry
			if err == nil {
				err = json.Unmarshal(line, &e)
			}
			if err != nil || len(all) == count {
				return all, err
			}
			all = append(all, e)
		}
	}
	return all, nil
}
