// Package runs is the coordinator's state folder: the journal with the present run, the models of all runs, what people
// have decided, and the history. It is also read by commands while the daemon runs.
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
//	run.a, run.b          the journal, in slots: the state of the present run
//	model.a, model.b      the present model and the state of the server's optimiser, in slots
//	control.a, control.b  what people have decided, in slots
//	task.a, task.b        the blob of the run's present task, in slots
//	seals.a, seals.b      the secrets with which messages are sealed, in slots
//	models/RUN/           the models of a run, as safetensors files
//	spool/ROUND/          the updates of the present round that have arrived
//	history.jsonl         one line for each round, for charts
//	audit/                who changed what: see package audit
//
// A round waits for two writes: the model's slot, and then the journal, which makes that model the present one. Until
// then the slot of the previous model is not touched. Everything else is written during the next round, or is not
// synced at all.
//
// A file that is damaged is never deleted: it is renamed, for example to run.aside-1. The fields that the journal
// contains are set by LoadJournalRecord, and written by SaveJournalRecord.
type StateFolder struct {
	Disk  store.Disk
	Dir   string
	Audit *audit.Log // nil in tests

	Epoch          wire.Epoch          // in the journal
	MinEpoch       wire.Epoch          // of Epoch, if several coordinators take turns
	Origin         RunOrigin           // in the journal: the model with which the run began
	PublishedBlobs publish.BlobListing // in the journal
	// AppliedTaskVersion is in the journal: the version of the applied task that the run learns.
	AppliedTaskVersion uint64
	// RunStartedFresh is in the journal. It is true if the run was begun in a folder without a run although no person
	// requested a new one, until the coordinator has read from the broker whether there is an earlier run.
	RunStartedFresh bool
	// JournalDamage is the damage of a copy of the journal that is newer than the one in force; nil without damage.
	JournalDamage error

	JournalSlots, ModelSlots, TaskSlots, ControlSlots, SealSlots *store.RecordSlots
	CurrentRunModels                                             *store.ModelFolder // of the present run

	history          *store.RoundHistory
	historyChecked   bool        // this process has written to the history, or found its last round there
	unjournaledModel wire.Digest // the model in a slot that no journal has named yet
}

// The names of the folders in a state folder.
const (
	SpoolDir  = "spool"
	ModelsDir = "models"
)

// savedJournal is the journal's content.
type savedJournal struct {
	Epoch              wire.Epoch
	Record             round.JournalRecord
	Origin             RunOrigin
	PublishedBlobs     publish.BlobListing `json:"Published"`
	AppliedTaskVersion uint64              `json:"Applied,omitempty"`
	RunStartedFresh    bool                `json:"Fresh,omitempty"`
}

// NewStateFolder returns a state folder for reading. Only the journal may be written. The folder itself is not created.
func NewStateFolder(files store.Disk, dir string) *StateFolder {
	slots := func(f *store.StateFile) *store.RecordSlots { return files.NewRecordSlots(dir, f) }
	return &StateFolder{Disk: files, Dir: dir, Epoch: 1, JournalSlots: slots(Journal), ModelSlots: slots(Model),
		TaskSlots: slots(Task), ControlSlots: slots(Control), SealSlots: slots(SealKeys)}
}

// OpenStateFolder opens the state folder of a coordinator that is about to run. It creates the folders inside. The
// caller closes it.
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

// Close closes the history.
func (d *StateFolder) Close() error { return d.history.Close() }

// FilePath returns the path of a file in the folder.
func (d *StateFolder) FilePath(name string) string { return filepath.Join(d.Dir, name) }

// SaveJournalRecord writes the journal. The record is in force from then on, and with it the model that it names.
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

// LoadJournalRecord returns the journaled record, and false if there is none.
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

// ParseJSONFile decodes the content of a file. The error is a store.CorruptError.
func (d *StateFolder) ParseJSONFile(f *store.StateFile, body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return &store.CorruptError{Path: d.FilePath(f.Name), Reason: err.Error()}
	}
	return nil
}

// SaveTask writes the blob of the run's present task.
func (d *StateFolder) SaveTask(blob []byte) error {
	return d.TaskSlots.WriteAndProtect(blob)
}

// LoadTask returns the blob of a task: the wanted one if a slot has it, otherwise the newest.
func (d *StateFolder) LoadTask(wanted func(blob []byte) bool) ([]byte, error) {
	found, err := d.TaskSlots.Load(wanted)
	if errors.Is(err, store.ErrNoRecord) {
		found, err = d.TaskSlots.Load(nil)
	}
	return found.Body, err
}

// NewOperatorDecisionError returns the error of a damaged or missing file. Its remedy names the commands with which a
// person decides how the run continues.
func (d *StateFolder) NewOperatorDecisionError(name, problem string, err error) error {
	do := "begin a run from an initial model with `coordinator run --new-run`"
	if run, newest := d.NewestModel(); newest > 0 {
		do = fmt.Sprintf("choose: go on from the newest sound model in a new run with `coordinator run --from %s`, "+
			"or %s", ModelName(run, newest), do)
	}
	if errors.As(err, new(*store.FormatVersionError)) && name == Journal.Name {
		problem += ", so another version of the program wrote it: finish the run with that one"
	}
	return &StateError{Path: d.FilePath(name), Problem: problem, Remedy: do, Err: err}
}

// SpoolPath returns the folder of the updates of a round.
func (d *StateFolder) SpoolPath(r wire.RoundID) string {
	return filepath.Join(d.Dir, SpoolDir, strconv.FormatUint(uint64(r), 10))
}

// RemoveSpool removes the updates of a round.
func (d *StateFolder) RemoveSpool(r wire.RoundID) error { return d.Disk.RemoveAll(d.SpoolPath(r)) }

// RemoveSpoolsBut removes the updates of all rounds except one: a crash between two rounds may have left some behind.
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

// ModelName returns RUN/VERSION, the name of a stored model for --from.
func ModelName(run wire.RunID, version uint64) string {
	return wire.ModelRef{Run: run, Version: wire.ModelVersion(version)}.String()
}

// ParseModelName parses RUN/VERSION, or VERSION of the run newest. ok is false if name is neither, and so a path.
func ParseModelName(name string, newest wire.RunID) (run wire.RunID, version uint64, ok bool) {
	head, tail, both := strings.Cut(name, "/")
	if !both {
		head, tail = strconv.FormatUint(uint64(newest), 10), head
	}
	id, err := strconv.ParseUint(head, 10, 64)
	version, err2 := strconv.ParseUint(tail, 10, 64)
	return wire.RunID(id), version, err == nil && err2 == nil
}

// RunOrigin is the model with which a run began. Its zero value means an initial model.
type RunOrigin struct {
	GivenStartModel string `json:"Given"` // as coordinator.Config.StartModel named it
	Model           string // RUN/VERSION, or the path of a file
	Digest          wire.Digest
	// Restandardized means that the run begins with a statistics round, and goes on with the model expressed in the new
	// standardisation.
	Restandardized bool
}

// StateError is returned by coordinator.New when the state on disk does not tell how to continue, and by
// coordinator.Run when an announcement at the broker contradicts it. An operator must choose; a restart does not help.
type StateError struct {
	Path    string
	Problem string
	Remedy  string // the commands to choose from
	Err     error  // the cause; may be nil
}

func (e *StateError) Error() string { return fmt.Sprintf("%s: %s; %s", e.Path, e.Problem, e.Remedy) }
func (e *StateError) Unwrap() error { return e.Err }

// PositionOfRecord returns the place of the newest announcement that may have been made from a record.
func PositionOfRecord(root wire.RootVersion, epoch wire.Epoch, r round.JournalRecord) wire.AnnouncementPosition {
	phase := wire.PhaseFinished // also between two rounds: the next announcement is of another round
	switch r.Phase {
	case round.CoordinatorGathering:
		phase = wire.PhaseGathering
	case round.CoordinatorCollecting:
		phase = wire.PhaseOpen
	}
	return wire.AnnouncementPosition{Root: root, Epoch: epoch, Run: r.Run, Round: r.Round, Attempt: r.Attempt,
		Phase: phase}
}

// rootPrefix begins the names of the files of the state folder that hold the root documents which have been installed.
const rootPrefix = "root-"

// RootDocumentFile is the name of the file of the state folder that holds a version of the root document.
func RootDocumentFile(v wire.RootVersion) string {
	return rootPrefix + strconv.FormatUint(uint64(v), 10)
}

// isRootDocumentFile reports whether a file of a backup is one.
func isRootDocumentFile(name string) bool {
	v, is := strings.CutPrefix(name, rootPrefix)
	n, err := strconv.ParseUint(v, 10, 32)
	return is && err == nil && path.Base(name) == RootDocumentFile(wire.RootVersion(n))
}
