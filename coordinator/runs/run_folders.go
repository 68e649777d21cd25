package runs

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// StoredRunIDs returns the ids of the runs that have a model folder, in ascending order.
func (d *StateFolder) StoredRunIDs() ([]wire.RunID, error) {
	entries, err := d.Disk.ReadDir(d.FilePath(ModelsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var runs []wire.RunID
	for _, e := range entries {
		if id, err := strconv.ParseUint(e.Name(), 10, 64); err == nil && e.IsDir() {
			runs = append(runs, wire.RunID(id))
		}
	}
	slices.Sort(runs)
	return runs, nil
}

func (d *StateFolder) runPath(run wire.RunID) string {
	return filepath.Join(d.FilePath(ModelsDir), strconv.FormatUint(uint64(run), 10))
}

// RemoveRunModels removes all models of a run.
func (d *StateFolder) RemoveRunModels(run wire.RunID) error { return d.Disk.RemoveAll(d.runPath(run)) }

// OpenCurrentRunModels opens the model folder of the given run as CurrentRunModels.
func (d *StateFolder) OpenCurrentRunModels(run wire.RunID) (err error) {
	d.CurrentRunModels, err = d.Disk.OpenModelFolder(d.runPath(run))
	return err
}

// OpenModelsOfRun opens the model folder of a run. It returns an error if the run has none.
func (d *StateFolder) OpenModelsOfRun(run wire.RunID) (*store.ModelFolder, error) {
	if _, err := d.Disk.Lstat(d.runPath(run)); err != nil {
		return nil, fmt.Errorf("no models found for run %d: %w", run, err)
	}
	return d.Disk.OpenModelFolder(d.runPath(run))
}

// NewestModel returns the newest trained model that is intact, of the newest run that has such a model. It returns
// version 0 if no run has one.
func (d *StateFolder) NewestModel() (wire.RunID, uint64) {
	runs, _ := d.StoredRunIDs()
	for _, run := range slices.Backward(runs) {
		models, err := d.OpenModelsOfRun(run)
		if err != nil {
			continue
		}
		versions, _ := models.Versions()
		for _, v := range slices.Backward(versions) {
			if _, err := d.ReadModel(models, v); err == nil && v > 0 {
				return run, v
			}
		}
	}
	return 0, 0
}

// SaveModel stores a model of the current run. If a different model with the same version exists, because an older
// journal was restored, that model is renamed.
func (d *StateFolder) SaveModel(m *SlotModel, durable bool, logger *slog.Logger) error {
	err := d.CurrentRunModels.Put(uint64(m.Version), m.Hash, durable, m.SafetensorsPieces...)
	if !errors.Is(err, store.ErrDigestConflict) {
		return err
	}
	aside, err := d.CurrentRunModels.SetAsideModel(uint64(m.Version))
	if err != nil {
		return err
	}
	logger.Warn("a different model file already had this version number; that file was renamed", "version", m.Version,
		"moved_to", aside)
	return d.CurrentRunModels.Put(uint64(m.Version), m.Hash, durable, m.SafetensorsPieces...)
}
