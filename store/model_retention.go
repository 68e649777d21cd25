package store

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
)

// Prune removes old models and their optimiser states. It keeps the newest keep versions up to and including version,
// and the versions in spare. keep must be at least 1. Models above version are kept, because they belong to a newer
// journal than the current journal.
func (m *ModelFolder) Prune(keep int, version uint64, spare ...uint64) error {
	if keep < 1 {
		return fmt.Errorf("store: cannot prune %s to %d models: at least 1 must be kept", m.dir, keep)
	}
	names, err := m.disk.ReadDir(m.dir)
	if err != nil {
		return explainFileError("list", m.dir, err)
	}
	versions := modelVersionsInNames(names, modelSuffix)
	versions = slices.DeleteFunc(versions, func(v uint64) bool { return v > version })
	if len(versions) <= keep {
		return nil
	}
	oldest := versions[len(versions)-keep]
	all := slices.Concat(versions, modelVersionsInNames(names, recordSuffix), modelVersionsInNames(names,
		optimizerStateSuffix))
	slices.Sort(all)
	for _, v := range slices.Compact(all) {
		if v >= oldest {
			break
		}
		if slices.Contains(spare, v) {
			continue
		}
		for _, path := range []string{m.Path(v), modelRecordPath(m.Path(v)), optimizerStatePath(m.Path(v))} {
			if err := m.disk.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return explainFileError("remove", path, err)
			}
		}
	}
	return nil
}

// SetAsideModel renames the files of a model durably, so that another model can be stored under the same version. It
// returns the new paths. They are empty if the model does not exist.
func (m *ModelFolder) SetAsideModel(version uint64) (names []string, err error) {
	for _, path := range []string{m.Path(version), modelRecordPath(m.Path(version))} {
		aside, err := m.disk.SetAsideFile(path)
		if err != nil {
			return names, err
		}
		if aside != "" {
			names = append(names, aside)
		}
	}
	return names, nil
}

// NewestVersionPerHour returns the newest model version of each of the last n hours in which models were stored. The
// hour of a model is the modification time of its file.
func (m *ModelFolder) NewestVersionPerHour(n int) ([]uint64, error) {
	entries, err := m.disk.ReadDir(m.dir)
	if err != nil {
		return nil, explainFileError("list", m.dir, err)
	}
	newest := map[int64]uint64{} // highest version by hour since 1970
	for _, e := range entries {
		of := modelVersionsInNames([]fs.DirEntry{e}, modelSuffix)
		if len(of) == 0 {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // the file was removed concurrently
			continue
		}
		if err != nil {
			return nil, explainFileError("examine", m.Path(of[0]), err)
		}
		hour := info.ModTime().Unix() / 3600
		newest[hour] = max(newest[hour], of[0])
	}
	hours := slices.Sorted(maps.Keys(newest))
	var versions []uint64
	for _, hour := range hours[max(0, len(hours)-n):] {
		versions = append(versions, newest[hour])
	}
	return versions, nil
}
