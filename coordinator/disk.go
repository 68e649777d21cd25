package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// disk is the coordinator's state folder:
//
//	run                where the run stands: the journal
//	task               the blob of the run's present task
//	published          the blobs that may be retained at the broker
//	models/RUN/        the models, as safetensors
//	spool/ROUND/       the accepted updates of the round under way
//	history.jsonl      a line a round, for charts
type disk struct {
	dir     string
	epoch   wire.Epoch
	models  *store.Models
	history *store.History
}

const (
	recordFile    = "run"
	recordVersion = 1
	maxRecord     = 1 << 30 // some 10 million edges
	taskFile      = "task"
	publishedFile = "published"
	spoolDir      = "spool"
	modelsDir     = "models"
)

// savedRecord is the journal's content.
type savedRecord struct {
	Epoch  wire.Epoch
	Record round.Record
}

func openDisk(dir string) (*disk, error) {
	d := &disk{dir: dir, epoch: 1}
	if err := os.MkdirAll(filepath.Join(dir, spoolDir), 0o700); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	var err error
	if d.history, err = store.OpenHistory(filepath.Join(dir, historyFile)); err != nil {
		return nil, err
	}
	return d, nil
}

// openModels opens the folder of a run's models.
func (d *disk) openModels(run wire.RunID) (err error) {
	dir := filepath.Join(d.dir, modelsDir, strconv.FormatUint(uint64(run), 10))
	if err = os.MkdirAll(dir, 0o700); err == nil {
		d.models, err = store.OpenModels(dir)
	}
	return err
}

func (d *disk) close() error { return d.history.Close() }

func (d *disk) saveRecord(r round.Record) error {
	body, err := json.Marshal(savedRecord{d.epoch, r})
	if err != nil {
		return err
	}
	return store.SaveRecord(filepath.Join(d.dir, recordFile), recordVersion, body)
}

// loadRecord returns the journaled record, and false if there is none.
func (d *disk) loadRecord() (round.Record, bool, error) {
	path := filepath.Join(d.dir, recordFile)
	version, body, err := store.LoadRecord(path, maxRecord)
	switch {
	case errors.Is(err, store.ErrNoRecord):
		return round.Record{}, false, nil
	case err != nil:
		return round.Record{}, false, err
	case version != recordVersion:
		return round.Record{}, false, fmt.Errorf("%s: version %d, this build reads %d", path, version, recordVersion)
	}
	var s savedRecord
	if err := json.Unmarshal(body, &s); err != nil {
		return round.Record{}, false, fmt.Errorf("%s: %w", path, err)
	}
	d.epoch = s.Epoch
	return s.Record, true, nil
}

func (d *disk) saveTask(blob []byte) error {
	return store.WriteFile(filepath.Join(d.dir, taskFile), blob, 0o600)
}

func (d *disk) loadTask() ([]byte, error) { return os.ReadFile(filepath.Join(d.dir, taskFile)) }

func (d *disk) savePublished(p published) error {
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return store.SaveRecord(filepath.Join(d.dir, publishedFile), recordVersion, body)
}

// loadPublished returns the list that an earlier process left. To have lost it
// costs no more than old blobs that stay at the broker.
func (d *disk) loadPublished(logger *slog.Logger) published {
	var p published
	_, body, err := store.LoadRecord(filepath.Join(d.dir, publishedFile), maxRecord)
	if err == nil {
		err = json.Unmarshal(body, &p)
	}
	if err != nil && !errors.Is(err, store.ErrNoRecord) {
		logger.Warn("the list of published blobs is unreadable: old blobs may stay at the broker", "err", err)
		return published{}
	}
	return p
}

func (d *disk) spoolPath(r wire.RoundID) string {
	return filepath.Join(d.dir, spoolDir, strconv.FormatUint(uint64(r), 10))
}

func (d *disk) removeSpool(r wire.RoundID) error { return os.RemoveAll(d.spoolPath(r)) }

// removeSpoolsBut clears what a crash between two rounds left behind.
func (d *disk) removeSpoolsBut(r wire.RoundID) error {
	entries, err := os.ReadDir(filepath.Join(d.dir, spoolDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if path := filepath.Join(d.dir, spoolDir, e.Name()); path != d.spoolPath(r) {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}
