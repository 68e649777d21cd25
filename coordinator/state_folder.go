package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/fedmesh/fedmesh/coordinator/audit"
	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// stateFolder is the coordinator's state folder:
//
//	run.a, run.b       where the run stands: the journal, in slots
//	model.a, model.b   the present model and the state of the optimiser, in slots
//	control.a, control.b  what people have decided
//	task.a, task.b     the blob of the run's present task, in slots
//	seals.a, seals.b   the secrets that seals are made with, in slots
//	models/RUN/        the archive: the models, as safetensors
//	spool/ROUND/       the updates of the round under way that have come
//	history.jsonl      a line a round, for charts
//	audit/             who changed what: see package audit
//
// A round waits for two of them: the model's slot, and then the journal, which makes that model the present one. Until
// then the slot of the model before is not touched. All else is written beside the next round, or is not synced at all.
//
// A file that is damaged is never deleted: it is renamed, as in run.aside-1.
type stateFolder struct {
	disk               store.Disk
	dir                string
	epoch              wire.Epoch
	minEpoch           wire.Epoch      // of epoch, where several coordinators take turns
	runOrigin          runOrigin       // of the run
	publishedBlobs     publish.Listing // the blobs that may be retained at the broker
	models             *store.Models
	history            *store.RoundHistory
	audit              *audit.Log // nil in tests
	historyChecked     bool       // this process has seen to a line of it
	appliedTaskVersion uint64     // the version of the applied task under which the journal's run stands
	// the run was begun in a folder without one, without a flag, and no broker was read since
	runStartedFresh bool

	journalSlots, modelSlots, taskSlots, controlSlots, sealSlots *store.RecordSlots

	unjournaledModel wire.Digest // of the model that its slot holds and no journal has named yet
	journalDamage    error       // of a copy of the journal that is newer than the one that counts; nil without
}

// The versions of the formats. A change of what is in a file raises its version, and reads the one before or says in
// the error what to do; TestFormats holds each file to it.
const (
	recordVersion  = 3
	taskVersion    = 2 // of wire.Task's encoding, too
	slotVersion    = 1 // of the model's
	requestVersion = 1
)

const (
	recordFile = "run"
	maxRecord  = 1 << 30 // some 10 million edges
	taskFile   = "task"
	maxTask    = wire.MaxBlob
	modelFile  = "model"
	maxModel   = 16 * wire.MaxBlob // with the state of an optimiser
	spoolDir   = "spool"
	modelsDir  = "models"
)

// savedRecord is the journal's content.
type savedRecord struct {
	Epoch     wire.Epoch
	Record    round.Record
	Origin    runOrigin
	Published publish.Listing
	Applied   uint64 `json:",omitempty"`
	Fresh     bool   `json:",omitempty"`
}

// newStateFolder makes the disk of a folder from which is only read, but for the journal.
func newStateFolder(files store.Disk, dir string) *stateFolder {
	slots := func(name string) *store.RecordSlots { return files.NewRecordSlots(filepath.Join(dir, name), 2) }
	return &stateFolder{disk: files, dir: dir, epoch: 1, journalSlots: slots(recordFile), modelSlots: slots(modelFile),
		taskSlots: slots(taskFile), controlSlots: slots(controlFile), sealSlots: slots(sealedFile)}
}

func openStateFolder(files store.Disk, dir string) (*stateFolder, error) {
	d := newStateFolder(files, dir)
	err := files.MakeDir(filepath.Join(dir, spoolDir))
	if err == nil {
		err = files.MakeDir(filepath.Join(dir, modelsDir))
	}
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	if d.history, err = d.disk.OpenHistory(filepath.Join(dir, historyFile)); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *stateFolder) close() error { return d.history.Close() }

func (d *stateFolder) path(name string) string { return filepath.Join(d.dir, name) }

// saveRecord makes the record count, and with it the model that it names.
func (d *stateFolder) saveRecord(r round.Record) error {
	body, err := json.Marshal(savedRecord{d.epoch, r, d.runOrigin, d.publishedBlobs, d.appliedTaskVersion,
		d.runStartedFresh})
	if err == nil {
		err = d.journalSlots.WriteAndProtect(recordVersion, body)
	}
	if err == nil && !d.unjournaledModel.IsZero() && r.Plan.Base.Hash == d.unjournaledModel {
		d.modelSlots.ProtectNewest()
		d.unjournaledModel = wire.Digest{}
	}
	return err
}

// loadRecord returns the journaled record, and false if there is none.
func (d *stateFolder) loadRecord() (round.Record, bool, error) {
	found, err := d.journalSlots.Load(maxRecord, nil)
	switch {
	case errors.Is(err, store.ErrNoRecord):
		return round.Record{}, false, nil
	case err == nil && found.Version != recordVersion:
		err = &store.VersionError{Path: d.path(recordFile), FileVersion: found.Version, SupportedVersion: recordVersion}
	}
	var s savedRecord
	if err == nil {
		err = d.parseJSONFile(recordFile, found.Body, &s)
	}
	if err != nil {
		return round.Record{}, false, err
	}
	d.epoch, d.runOrigin, d.publishedBlobs, d.journalDamage = max(s.Epoch, d.minEpoch), s.Origin, s.Published,
		found.NewerCopyDamage
	d.appliedTaskVersion, d.runStartedFresh = s.Applied, s.Fresh
	return s.Record, true, nil
}

// loadVersionedFile reads a file of the folder that has a version.
func (d *stateFolder) loadVersionedFile(name string, most int, want uint16) ([]byte, error) {
	version, body, err := d.disk.LoadRecord(d.path(name), most)
	if err == nil && version != want {
		err = &store.VersionError{Path: d.path(name), FileVersion: version, SupportedVersion: want}
	}
	return body, err
}

func (d *stateFolder) parseJSONFile(name string, body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return &store.CorruptError{Path: d.path(name), Reason: err.Error()}
	}
	return nil
}

func (d *stateFolder) saveTask(blob []byte) error {
	return d.taskSlots.WriteAndProtect(taskVersion, blob)
}

// loadTask returns the task's blob: the one that is wanted if a slot has it, or else the newest.
func (d *stateFolder) loadTask(wanted func(blob []byte) bool) ([]byte, error) {
	found, err := d.taskSlots.Load(maxTask, func(s store.SavedRecord) bool {
		return s.Version == taskVersion &&
			wanted(s.Body)
	})
	if errors.Is(err, store.ErrNoRecord) {
		found, err = d.taskSlots.Load(maxTask, nil)
	}
	if err == nil && found.Version != taskVersion {
		err = &store.VersionError{Path: d.path(taskFile), FileVersion: found.Version, SupportedVersion: taskVersion}
	}
	return found.Body, err
}

// operatorDecisionError is the error that leaves it to a person how to go on.
func (d *stateFolder) operatorDecisionError(name, problem string, err error) error {
	do := "begin a run from an initial model with `coordinator run --new-run`"
	if run, newest := d.newestModel(); newest > 0 {
		do = fmt.Sprintf("choose: go on from the newest sound model in a new run with `coordinator run --from %s`, "+
			"or %s", modelName(run, newest), do)
	}
	if errors.As(err, new(*store.VersionError)) && name == recordFile {
		problem += ", so another version of the program wrote it: finish the run with that one"
	}
	return &StateError{Path: d.path(name), Problem: problem, Remedy: do, Err: err}
}

func (d *stateFolder) spoolPath(r wire.RoundID) string {
	return filepath.Join(d.dir, spoolDir, strconv.FormatUint(uint64(r), 10))
}

func (d *stateFolder) removeSpool(r wire.RoundID) error { return d.disk.RemoveAll(d.spoolPath(r)) }

// removeSpoolsBut clears what a crash between two rounds left behind.
func (d *stateFolder) removeSpoolsBut(r wire.RoundID) error {
	entries, err := d.disk.ReadDir(filepath.Join(d.dir, spoolDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if path := filepath.Join(d.dir, spoolDir, e.Name()); path != d.spoolPath(r) {
			if err := d.disk.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}
