package store

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// Prune removes the models below version, and the states of optimisers with them, but for the newest keep-1,
// so that keep stay with version itself, and but for those in spare.
// Models above version are left alone: they are of a journal that is newer than the one in use. keep is at least 1.
func (m *Models) Prune(keep int, version uint64, spare ...uint64) error {
	if keep < 1 {
		return fmt.Errorf("store: prune %s to %d models: want at least 1", m.dir, keep)
	}
	names, err := m.disk.ReadDir(m.dir)
	if err != nil {
		return explain("list", m.dir, err)
	}
	versions := versionsOf(names, modelSuffix)
	versions = slices.DeleteFunc(versions, func(v uint64) bool { return v > version })
	if len(versions) <= keep {
		return nil
	}
	oldest := versions[len(versions)-keep]
	all := slices.Concat(versions, versionsOf(names, recordSuffix), versionsOf(names, stateSuffix))
	slices.Sort(all)
	for _, v := range slices.Compact(all) {
		if v >= oldest {
			break
		}
		if slices.Contains(spare, v) {
			continue
		}
		for _, path := range []string{m.Path(v), recordPath(m.Path(v)), statePath(m.Path(v))} {
			if err := m.disk.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return explain("remove", path, err)
			}
		}
	}
	return nil
}

// SetAside renames, durably, the model of a version and its record, sound or damaged, so that another one can be stored
// as that version. It returns where they are now; nothing if there was neither.
func (m *Models) SetAside(version uint64) (names []string, err error) {
	for _, path := range []string{m.Path(version), recordPath(m.Path(version))} {
		aside, err := m.disk.SetAside(path)
		if err != nil {
			return names, err
		}
		if aside != "" {
			names = append(names, aside)
		}
	}
	return names, nil
}
