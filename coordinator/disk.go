package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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
//
// A file that is damaged is never deleted: it is renamed, as in run.aside-1.
type disk struct {
	files   store.Disk
	dir     string
	epoch   wire.Epoch
	origin  origin // of the run
	models  *store.Models
	history *store.History
}

// The versions of the formats. A change of what is in a file raises its version, and reads the one before or says in
// the error what to do; TestFormats holds each file to it.
const (
	recordVersion    = 2
	taskVersion      = 2 // of wire.Task's encoding, too
	publishedVersion = 1
	requestVersion   = 1
	modelFormat      = 1 // of the metadata of a model's file
)

const (
	recordFile    = "run"
	maxRecord     = 1 << 30 // some 10 million edges
	taskFile      = "task"
	maxTask       = wire.MaxBlob
	publishedFile = "published"
	spoolDir      = "spool"
	modelsDir     = "models"
)

// savedRecord is the journal's content.
type savedRecord struct {
	Epoch  wire.Epoch
	Record round.Record
	Origin origin
}

func openDisk(files store.Disk, dir string) (*disk, error) {
	d := &disk{files: files, dir: dir, epoch: 1}
	err := files.MakeDir(filepath.Join(dir, spoolDir))
	if err == nil {
		err = files.MakeDir(filepath.Join(dir, modelsDir))
	}
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	if d.history, err = d.files.OpenHistory(filepath.Join(dir, historyFile)); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *disk) close() error { return d.history.Close() }

func (d *disk) path(name string) string { return filepath.Join(d.dir, name) }

func (d *disk) saveRecord(r round.Record) error {
	body, err := json.Marshal(savedRecord{d.epoch, r, d.origin})
	if err != nil {
		return err
	}
	return d.files.SaveRecord(d.path(recordFile), recordVersion, body)
}

// loadRecord returns the journaled record, and false if there is none.
func (d *disk) loadRecord() (round.Record, bool, error) {
	body, err := d.load(recordFile, maxRecord, recordVersion)
	if errors.Is(err, store.ErrNoRecord) {
		return round.Record{}, false, nil
	}
	var s savedRecord
	if err == nil {
		err = d.parse(recordFile, body, &s)
	}
	if err != nil {
		return round.Record{}, false, err
	}
	d.epoch, d.origin = s.Epoch, s.Origin
	return s.Record, true, nil
}

// load reads a file of the folder that has a version.
func (d *disk) load(name string, most int, want uint16) ([]byte, error) {
	version, body, err := d.files.LoadRecord(d.path(name), most)
	if err == nil && version != want {
		err = &store.VersionError{Path: d.path(name), Has: version, Want: want}
	}
	return body, err
}

func (d *disk) parse(name string, body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return &store.CorruptError{Path: d.path(name), Reason: err.Error()}
	}
	return nil
}

func (d *disk) saveTask(blob []byte) error {
	return d.files.SaveRecord(d.path(taskFile), taskVersion, blob)
}

// loadTask returns the task's blob. A file without a version is a blob as it was stored before files had one.
func (d *disk) loadTask() ([]byte, error) {
	blob, err := d.load(taskFile, maxTask, taskVersion)
	if errors.As(err, new(*store.CorruptError)) {
		if bare, err := d.files.ReadFile(d.path(taskFile)); err == nil {
			if _, err := wire.DecodeTask(bare); err == nil {
				return bare, nil
			}
		}
	}
	return blob, err
}

func (d *disk) savePublished(p published) error {
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return d.files.SaveRecord(d.path(publishedFile), publishedVersion, body)
}

// loadPublished returns the list that an earlier process left. To have lost it
// costs no more than old blobs that stay at the broker.
func (d *disk) loadPublished(logger *slog.Logger) published {
	var p published
	body, err := d.load(publishedFile, maxRecord, publishedVersion)
	if err == nil {
		err = d.parse(publishedFile, body, &p)
	}
	if err != nil && !errors.Is(err, store.ErrNoRecord) {
		logger.Warn("the list of published blobs is unreadable: blobs of earlier rounds may stay at the broker; "+
			"nothing else depends on it", "err", err)
		return published{}
	}
	return p
}

// undecided is the error that leaves it to a person how to go on.
func (d *disk) undecided(name, problem string, err error) error {
	do := "begin a run from an initial model with `coordinator run --new-run`"
	if run, newest := d.newestModel(); newest > 0 {
		do = fmt.Sprintf("choose: go on from the newest sound model in a new run with `coordinator run --from %s`, "+
			"or %s", modelName(run, newest), do)
	}
	if errors.As(err, new(*store.VersionError)) && name == recordFile {
		problem += ", so another version of the program wrote it: finish the run with that one"
	}
	return &StateError{Path: d.path(name), Problem: problem, Do: do, Err: err}
}

func (d *disk) spoolPath(r wire.RoundID) string {
	return filepath.Join(d.dir, spoolDir, strconv.FormatUint(uint64(r), 10))
}

func (d *disk) removeSpool(r wire.RoundID) error { return d.files.RemoveAll(d.spoolPath(r)) }

// removeSpoolsBut clears what a crash between two rounds left behind.
func (d *disk) removeSpoolsBut(r wire.RoundID) error {
	entries, err := d.files.ReadDir(filepath.Join(d.dir, spoolDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if path := filepath.Join(d.dir, spoolDir, e.Name()); path != d.spoolPath(r) {
			if err := d.files.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}
