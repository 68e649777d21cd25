package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// Prune removes, durably, all but the newest keep models; keep is at least 1.
func (m *Models) Prune(keep int) error {
	if keep < 1 {
		return fmt.Errorf("store: prune %s to %d models: want at least 1", m.dir, keep)
	}
	versions, err := m.versions(modelSuffix)
	if err != nil || len(versions) <= keep {
		return err
	}
	oldest := versions[len(versions)-keep]
	return m.removeAll(func(v uint64) bool { return v < oldest })
}

// RemoveAbove removes, durably, all models of a version higher than this one, whether sound or damaged, so that what
// a fold left that a crash cut short is neither taken for the latest model nor in conflict with the fold's repetition.
func (m *Models) RemoveAbove(version uint64) error {
	return m.removeAll(func(v uint64) bool { return v > version })
}

// removeAll removes the models of these versions and their records, also a record whose model a crash prevented.
// It fsyncs the folder even if there is nothing to remove: a call that a crash cut short may have removed it already.
func (m *Models) removeAll(doomed func(version uint64) bool) error {
	models, err := m.versions(modelSuffix)
	if err != nil {
		return err
	}
	records, err := m.versions(recordSuffix)
	if err != nil {
		return err
	}
	for _, v := range slices.Concat(models, records) {
		if !doomed(v) {
			continue
		}
		for _, path := range []string{m.path(v), recordPath(m.path(v))} {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return explain("remove", path, err)
			}
		}
	}
	if err := syncDir(m.dir); err != nil {
		return explain("fsync", m.dir, err)
	}
	return nil
}
