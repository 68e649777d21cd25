package coordinator

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

// runs returns the runs that have a folder of models, in ascending order.
func (d *stateFolder) runs() ([]wire.RunID, error) {
	entries, err := d.disk.ReadDir(d.path(modelsDir))
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

func (d *stateFolder) runPath(run wire.RunID) string {
	return filepath.Join(d.path(modelsDir), strconv.FormatUint(uint64(run), 10))
}

func (d *stateFolder) removeRun(run wire.RunID) error { return d.disk.RemoveAll(d.runPath(run)) }

// openCurrentRunModels opens the folder of the models of the run that goes on, or begins.
func (d *stateFolder) openCurrentRunModels(run wire.RunID) (err error) {
	d.models, err = d.disk.OpenModels(d.runPath(run))
	return err
}

// modelsOf opens the models of a run that is there.
func (d *stateFolder) modelsOf(run wire.RunID) (*store.Models, error) {
	if _, err := d.disk.Lstat(d.runPath(run)); err != nil {
		return nil, fmt.Errorf("there are no models of run %d: %w", run, err)
	}
	return d.disk.OpenModels(d.runPath(run))
}

// newestModel returns the newest sound model of the newest run that has trained one, or version 0.
func (d *stateFolder) newestModel() (wire.RunID, uint64) {
	runs, _ := d.runs()
	for _, run := range slices.Backward(runs) {
		models, err := d.modelsOf(run)
		if err != nil {
			continue
		}
		versions, _ := models.Versions()
		for _, v := range slices.Backward(versions) {
			if _, err := d.readModel(models, v); err == nil && v > 0 {
				return run, v
			}
		}
	}
	return 0, 0
}

// saveModel stores a model. Another one that is stored as that version, of a journal that was newer, is renamed.
func (d *stateFolder) saveModel(m *slotModel, durable bool, logger *slog.Logger) error {
	err := d.models.Put(uint64(m.version), m.hash, durable, m.safetensorsPieces...)
	if !errors.Is(err, store.ErrConflict) {
		return err
	}
	aside, err := d.models.SetAside(uint64(m.version))
	if err != nil {
		return err
	}
	logger.Warn("another model was stored as this version: it is kept under another name", "version", m.version,
		"moved_to", aside)
	return d.models.Put(uint64(m.version), m.hash, durable, m.safetensorsPieces...)
}
