// Package runs implements the coordinator's state folder: the journal of the current run, the models of all runs,
// operator decisions and the history. Commands also read it while the daemon is running.
package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fedmesh/fedmesh/coordinator/audit"
	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// StateFolder is the coordinator's state folder:
//
//	run.a, run.b          the journal, in slots: the state of the current run
//	model.a, model.b      the current model and the state of the server optimiser, in slots
//	control.a, control.b  operator decisions, in slots
//	task.a, task.b        the blob of the run's current task, in slots
//	seals.a, seals.b      the secrets for message encryption, in slots
//	models/RUN/           the models of a run, as safetensors files
//	spool/ROUND/          the received updates of the current round
//	history.jsonl         one line for each round, for charts
//	audit/                the audit log: see package audit
//
// A round waits for two writes: the model slot, and then the journal, which makes that model the current one. Until the
// journal is written, the slot of the previous model is not changed. All other files are written during the next round,
// or are not synced.
//
// A damaged file is never deleted: it is renamed, for example to run.aside-1. LoadJournalRecord sets the fields that
// are stored in the journal, and SaveJournalRecord writes them.
type StateFolder struct {
	Disk  store.Disk
	Dir   string
	Audit *audit.Log // audit log; nil in tests

	Epoch          wire.Epoch          // current epoch; stored in the journal
	MinEpoch       wire.Epoch          // minimum epoch of a leader among several coordinators
	Origin         RunOrigin           // model with which the run began; stored in the journal
	PublishedBlobs publish.BlobListing // blobs at the broker; stored in the journal
	// AppliedTaskVersion is the version of the applied task that the run uses. It is stored in the journal.
	AppliedTaskVersion uint64
	// RunStartedFresh is true if the run began in an empty folder without an operator's request. It is reset after the
	// broker was checked for an earlier run. It is stored in the journal.
	RunStartedFresh bool
	// JournalDamage describes a damaged journal copy that is newer than the one in use; nil without damage.
	JournalDamage error

	JournalSlots, ModelSlots, TaskSlots, ControlSlots, SealSlots *store.RecordSlots
	CurrentRunModels                                             *store.ModelFolder // models of the current run

	history          *store.RoundHistory
	historyChecked   bool        // true once this process has checked or extended the history
	unjournaledModel wire.Digest // hash of a model in a slot that is not in the journal yet
}

// Names of subfolders of the state folder.
const (
	SpoolDir  = "spool"
	ModelsDir = "models"
)

// savedJournal is the content of the journal file.
type savedJournal struct {
	Epoch              wire.Epoch
	Record             round.JournalRecord
	Origin             RunOrigin
	PublishedBlobs     publish.BlobListing `json:"Published"`
	AppliedTaskVersion uint64              `json:"Applied,omitempty"`
	RunStartedFresh    bool                `json:"Fresh,omitempty"`
}

// NewStateFolder returns a state folder for reading. Only the journal may be written. NewStateFolder does not create
// the folder on disk.
func NewStateFolder(files store.Disk, dir string) *StateFolder {
	slots := func(f *store.StateFile) *store.RecordSlots { return files.NewRecordSlots(dir, f) }
	return &StateFolder{Disk: files, Dir: dir, Epoch: 1, JournalSlots: slots(Journal), ModelSlots: slots(Model),
		TaskSlots: slots(Task), ControlSlots: slots(Control), SealSlots: slots(SealKeys)}
}

// OpenStateFolder opens the state folder of a coordinator for reading and writing, and creates its subfolders. The
// caller must close it.
func OpenStateFolder(files store.Disk, dir string) (*StateFolder, error) {
	d := NewStateFolder(files, dir)
	err := files.MakeDir(filepath.Join(dir, SpoolDir))
	if err == nil {
		err = files.MakeDir(filepath.Join(dir, ModelsDir))
	}
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	if d.history, err = d.Disk.OpenRoundHistory(filepath.Join(dir, historyFile)); err != nil {
		return nil, err
	}
	return d, nil
}

// Close closes the history file.
func (d *StateFolder) Close() error { return d.history.Close() }

// FilePath returns the path of a file in the state folder.
func (d *StateFolder) FilePath(name string) string { return filepath.Join(d.Dir, name) }

// SaveJournalRecord writes the journal. From then on, the record and its model are the current ones.
func (d *StateFolder) SaveJournalRecord(r round.JournalRecord) error {
	body, err := json.Marshal(savedJournal{d.Epoch, r, d.Origin, d.PublishedBlobs, d.AppliedTaskVersion,
		d.RunStartedFresh})
	if err == nil {
		err = d.JournalSlots.WriteAndProtect(body)
	}
	if err == nil && !d.unjournaledModel.IsZero() && r.Plan.BaseModel.Hash == d.unjournaledModel {
		d.ModelSlots.ProtectNewest()
		d.unjournaledModel = wire.Digest{}
	}
	return err
}

// LoadJournalRecord loads the record in the journal. It returns false if no journal exists.
func (d *StateFolder) LoadJournalRecord() (round.JournalRecord, bool, error) {
	found, err := d.JournalSlots.Load(nil)
	if errors.Is(err, store.ErrNoRecord) {
		return round.JournalRecord{}, false, nil
	}
	var s savedJournal
	if err == nil {
		err = d.ParseJSONFile(Journal, found.Body, &s)
	}
	if err != nil {
		return round.JournalRecord{}, false, err
	}
	d.Epoch, d.Origin, d.PublishedBlobs, d.JournalDamage = max(s.Epoch, d.MinEpoch), s.Origin, s.PublishedBlobs,
		found.NewerCopyDamage
	d.AppliedTaskVersion, d.RunStartedFresh = s.AppliedTaskVersion, s.RunStartedFresh
	return s.Record, true, nil
}

// ParseJSONFile decodes the JSON content of a state file. The error is a store.CorruptError.
func (d *StateFolder) ParseJSONFile(f *store.StateFile, body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return &store.CorruptError{Path: d.FilePath(f.Name), Reason: err.Error()}
	}
	return nil
}

// SaveTask writes the blob of the run's current task.
func (d *StateFolder) SaveTask(blob []byte) error {
	return d.TaskSlots.WriteAndProtect(blob)
}

// LoadTask returns the encoded task. It returns a blob for which wanted returns true, if a slot contains one. Otherwise
// it returns the blob in the newest slot.
func (d *StateFolder) LoadTask(wanted func(blob []byte) bool) ([]byte, error) {
	found, err := d.TaskSlots.Load(wanted)
	if errors.Is(err, store.ErrNoRecord) {
		found, err = d.TaskSlots.Load(nil)
	}
	return found.Body, err
}

// NewOperatorDecisionError returns the error for a damaged or missing file. Its remedy contains the commands with which
// an operator chooses how to continue.
func (d *StateFolder) NewOperatorDecisionError(name, problem string, err error) error {
	do := "start a new run from an initial model with `coordinator run --new-run`"
	if run, newest := d.NewestModel(); newest > 0 {
		do = fmt.Sprintf(
			"start a new run from the newest intact model with `coordinator run --from %s`, or %s",
			ModelName(run, newest), do)
	}
	if errors.As(err, new(*store.FormatVersionError)) && name == Journal.Name {
		problem += ", so a different program version wrote it: finish the run with that version"
	}
	return &StateError{Path: d.FilePath(name), Problem: problem, Remedy: do, Err: err}
}

// SpoolPath returns the folder with the updates of a round.
func (d *StateFolder) SpoolPath(r wire.RoundID) string {
	return filepath.Join(d.Dir, SpoolDir, strconv.FormatUint(uint64(r), 10))
}

// RemoveSpool removes the updates of a round.
func (d *StateFolder) RemoveSpool(r wire.RoundID) error { return d.Disk.RemoveAll(d.SpoolPath(r)) }

// RemoveSpoolsBut removes the updates of all rounds except r. A crash between two rounds may have left some behind.
func (d *StateFolder) RemoveSpoolsBut(r wire.RoundID) error {
	entries, err := d.Disk.ReadDir(filepath.Join(d.Dir, SpoolDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if path := filepath.Join(d.Dir, SpoolDir, e.Name()); path != d.SpoolPath(r) {
			if err := d.Disk.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// ModelName returns RUN/VERSION, the name of a stored model in arguments such as --from.
func ModelName(run wire.RunID, version uint64) string {
	return wire.ModelRef{Run: run, Version: wire.ModelVersion(version)}.String()
}

// ParseModelName parses RUN/VERSION, or VERSION of the run newest. ok is false for any other name, such as a path.
func ParseModelName(name string, newest wire.RunID) (run wire.RunID, version uint64, ok bool) {
	head, tail, both := strings.Cut(name, "/")
	if !both {
		head, tail = strconv.FormatUint(uint64(newest), 10), head
	}
	id, err := strconv.ParseUint(head, 10, 64)
	version, err2 := strconv.ParseUint(tail, 10, 64)
	return wire.RunID(id), version, err == nil && err2 == nil
}

// RunOrigin identifies the model with which a run began. The zero value means an initial model.
type RunOrigin struct {
	GivenStartModel string `json:"Given"` // name in coordinator.Config.StartModel
	Model           string // RUN/VERSION or the path of a file
	Digest          wire.Digest
	// Restandardized is true if the run begins with a statistics round and continues with the model in the new
	// standardisation.
	Restandardized bool
}

// StateError reports that the coordinator cannot decide how to continue. The state on disk is inconclusive, or an
// announcement at the broker contradicts it. An operator must choose; restarting does not help.
type StateError struct {
	Path    string
	Problem string
	Remedy  string // commands from which the operator can choose
	Err     error  // cause of the problem; may be nil
}

func (e *StateError) Error() string { return fmt.Sprintf("%s: %s; %s", e.Path, e.Problem, e.Remedy) }
func (e *StateError) Unwrap() error { return e.Err }

// PositionOfRecord returns the position of the newest announcement that may have been published for a journal record.
func PositionOfRecord(root wire.RootVersion, epoch wire.Epoch, r round.JournalRecord) wire.AnnouncementPosition {
	phase := wire.PhaseFinished // this phase is also used between two rounds
	switch r.Phase {
	case round.CoordinatorGathering:
		phase = wire.PhaseGathering
	case round.CoordinatorCollecting:
		phase = wire.PhaseOpen
	}
	return wire.AnnouncementPosition{Root: root, Epoch: epoch, Run: r.Run, Round: r.Round, Attempt: r.Attempt,
		Phase: phase}
}

// rootPrefix is the file name prefix of installed root documents in the state folder.
const rootPrefix = "root-"

// RootDocumentFile returns the file name of a version of the root document in the state folder.
func RootDocumentFile(v wire.RootVersion) string {
	return rootPrefix + strconv.FormatUint(uint64(v), 10)
}

// isRootDocumentFile reports whether a file in a backup is a root document.
func isRootDocumentFile(name string) bool {
	v, is := strings.CutPrefix(name, rootPrefix)
	n, err := strconv.ParseUint(v, 10, 32)
	return is && err == nil && path.Base(name) == RootDocumentFile(wire.RootVersion(n))
}
