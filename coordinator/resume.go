package coordinator

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// StateError is the error of New when what is on disk does not say how to go on, and of Run when the broker speaks
// against it. A person has to choose: no restart mends it.
type StateError struct {
	Path    string
	Problem string
	Do      string // the commands to choose from
	Err     error  // the cause; may be nil
}

func (e *StateError) Error() string { return fmt.Sprintf("%s: %s; %s", e.Path, e.Problem, e.Do) }
func (e *StateError) Unwrap() error { return e.Err }

// OtherTaskError is the error of New when the folder's run learns another task than the configured one. No restart
// mends it.
type OtherTaskError struct {
	Run, Configured wire.Task // without a standardisation
	Newest          string    // the run's present model, as --from takes it; "" before there is one
}

func (e *OtherTaskError) Error() string {
	from := ""
	if e.Newest != "" {
		from = fmt.Sprintf("with its present model (--from %s) or ", e.Newest)
	}
	return "the configured task differs from that of the run in the state folder: put it back, or begin a new run " +
		from + "from an initial model (--new-run)"
}

// resume returns the record of the folder's run, or of a new one.
func (c *Coordinator) resume() (round.Record, error) {
	record, found, err := c.disk.loadRecord()
	unsound := isDamage(err)
	if err != nil && !unsound {
		return record, err
	}
	begins := c.cfg.NewRun
	if !begins && c.cfg.From != "" {
		if begins, err = c.beginsFrom(record, found); err != nil {
			return record, err
		}
	}
	// A run that --from has begun, and that no process has announced yet, is as new at the broker as at
	// its first start.
	c.begins = begins || c.cfg.From != "" && record.Round == 0 && !c.disk.origin.Restandardized
	switch {
	case begins && unsound:
		aside, err := c.disk.files.SetAside(c.disk.path(recordFile))
		if err != nil {
			return record, err
		}
		c.cfg.Logger.Error("the journal of the run before was damaged; its models stay", "moved_to", aside)
		return c.begin(0, "")
	case begins:
		return c.begin(record.Run, "")
	case unsound:
		return record, c.disk.undecided(recordFile, err.Error(), err)
	case !found:
		if _, newest := c.disk.newestModel(); newest > 0 {
			return record, c.disk.undecided(recordFile, "there is no journal, though models of a run are there", nil)
		}
		return c.begin(0, "")
	}
	if err := c.disk.openModels(record.Run); err != nil {
		return record, err
	}
	record, err = c.work.restore(record, c.tellLater)
	if err == nil && c.restandardizes(record) {
		return c.begin(record.Run, modelName(record.Run, uint64(record.Plan.Version)))
	}
	return record, err
}

// isDamage reports whether an error is of the content of a file, which no repetition mends, and not of the disk.
func isDamage(err error) bool {
	var corrupt *store.CorruptError
	var version *store.VersionError
	return errors.As(err, &corrupt) || errors.As(err, &version)
}

// isLost reports whether what should be in a file is not: it is damaged, or missing.
func isLost(err error) bool {
	return isDamage(err) || errors.Is(err, store.ErrNoRecord) || errors.Is(err, store.ErrNoModel)
}

// begin plans a new run, with a larger id than all before. again, if set, names the model to go on with in a new
// standardisation.
func (c *Coordinator) begin(before wire.RunID, again string) (round.Record, error) {
	runs, err := c.disk.runs()
	if err != nil {
		return round.Record{}, err
	}
	newest := before
	for _, run := range runs {
		newest = max(newest, run)
	}
	record := round.Record{Run: max(wire.RunID(c.owner.Now().UnixMilli()), newest+1), Phase: round.CoordinatorIdle}
	t, model := c.cfg.Task, []float32(nil)
	switch {
	case again != "":
		if c.disk.origin, err = c.restandardized(again); err != nil {
			return record, err
		}
	case c.cfg.From != "":
		if c.disk.origin, model, t, err = c.readOrigin(c.cfg.From, newest); err != nil {
			return record, err
		}
	default:
		c.disk.origin = origin{}
	}
	if from := c.disk.origin.Model; from != "" {
		c.cfg.Logger.Info("a run begins from a model", "model", from, "run", record.Run,
			"new_statistics_round", again != "")
	}
	if err := c.disk.openModels(record.Run); err != nil {
		return record, err
	}
	if err := c.work.setTask(t); err != nil {
		return record, err
	}
	switch {
	case model != nil:
		var state [][]float64
		if state, err = c.work.inherited(); err == nil {
			record.Plan, err = c.work.training(0, 0, model, state)
		}
	case c.cfg.Standardize:
		record.Plan = c.work.statistics()
	default:
		record.Plan, err = c.work.training(0, 0, c.work.problem.Initial(c.cfg.Round.Seed), nil)
	}
	if err == nil {
		err = c.disk.removeSpoolsBut(0)
	}
	if err == nil {
		// before the models of another run go; the machine starts when the broker has been heard
		err = c.disk.saveRecord(record)
	}
	if err == nil && c.cfg.KeepRuns > 0 {
		err = c.dropRuns(runs)
	}
	return record, err
}

// restore takes up the task and the model of a journaled round. Where the model is lost the record that it returns
// stands on the newest older one that is sound, between two rounds. tell is told what was mended.
func (w *workbench) restore(r round.Record, tell func(Fact)) (round.Record, error) {
	p := &r.Plan
	t, blob, err := w.restoreTask(r, tell)
	if err != nil {
		return r, err
	}
	plain := t
	plain.Standardization = wire.Standardization{}
	if !bytes.Equal(plain.Append(nil), w.cfg.Task.Append(nil)) {
		other := &OtherTaskError{Run: plain, Configured: w.cfg.Task}
		if p.Kind == wire.KindTraining {
			other.Newest = modelName(r.Run, uint64(p.Version))
		}
		return r, other
	}
	if err := w.useTask(t, blob); err != nil || p.Kind == wire.KindStatistics {
		return r, err
	}
	return w.restoreModel(r, tell)
}

// restoreTask returns the task of the journaled round: from its file, from the journal itself, which holds a small one,
// or made anew from the configuration and the standardisation that a model's file tells. The SHA-256 in the journal
// decides.
func (w *workbench) restoreTask(r round.Record, tell func(Fact)) (t wire.Task, blob []byte, err error) {
	want := r.Plan.Task
	is := func(blob []byte) bool { return sha256.Sum256(blob) == want.Hash }
	// Before the statistics are folded the task is the configured one; on disk
	// may be the one that a fold has made and that the journal does not know yet.
	if blob = w.cfg.Task.Append(nil); is(blob) {
		return w.cfg.Task, blob, nil
	}
	blob, damage := w.disk.loadTask()
	if errors.As(damage, new(*store.VersionError)) {
		return t, nil, w.disk.undecided(taskFile,
			damage.Error()+", so another version of the program wrote it: finish the run with that one", damage)
	}
	if damage != nil && !isLost(damage) {
		return t, nil, damage
	}
	if damage == nil && !is(blob) {
		damage = &store.CorruptError{Path: w.disk.path(taskFile), Reason: "it is not the task that the journal names"}
	}
	if damage != nil {
		if blob = want.Inline; !is(blob) {
			blob = w.remakeTask(is)
		}
		if blob == nil {
			return t, nil, w.disk.undecided(taskFile,
				damage.Error()+", and no sound model with the configured task gives it again: "+
					"put the file or the configuration of the run back", damage)
		}
	}
	if t, err = wire.DecodeTask(blob); err != nil {
		return t, nil, w.disk.undecided(taskFile,
			fmt.Sprintf("the run's task is of another version of the program (%v): finish the run with that one", err),
			err)
	}
	if damage == nil {
		return t, blob, nil
	}
	aside, err := w.disk.files.SetAside(w.disk.path(taskFile))
	if err == nil {
		err = w.disk.saveTask(blob)
	}
	tell(StateMended{File: StateTask, Damage: damage, Aside: aside, Before: r.Plan.Version, Version: r.Plan.Version})
	return t, blob, err
}

// remakeTask returns the blob of the configured task with the standardisation of one of the run's models, newest first,
// or nil.
func (w *workbench) remakeTask(is func(blob []byte) bool) []byte {
	versions, err := w.disk.models.Versions()
	if err != nil {
		return nil
	}
	for i := len(versions) - 1; i >= 0; i-- {
		m, err := w.disk.readModel(w.disk.models, versions[i])
		if err != nil {
			continue
		}
		t := w.cfg.Task
		t.Standardization = m.standardization
		if blob := t.Append(nil); is(blob) {
			return blob
		}
	}
	return nil
}

// restoreModel takes up the model of the journaled round, and tells of models that are beyond it.
func (w *workbench) restoreModel(r round.Record, tell func(Fact)) (round.Record, error) {
	p := &r.Plan
	versions, err := w.disk.models.Versions()
	if err != nil {
		return r, err
	}
	// The model of a fold that was cut short is one beyond the journal; more of them are of a newer journal.
	if n := len(versions); n > 0 && versions[n-1] > uint64(p.Version)+1 {
		tell(ModelsAhead{Version: p.Version, Newest: wire.ModelVersion(versions[n-1])})
	}
	s := w.problem.Schema(wire.KindTraining)
	data, damage := w.disk.loadModel(p.Version, p.Base.Hash, s)
	if damage == nil {
		return r, w.useModel(data)
	}
	if !isLost(damage) {
		return r, damage
	}
	if data == nil && sha256.Sum256(p.Base.Inline) == p.Base.Hash {
		data = p.Base.Inline
	}
	if errors.As(damage, new(*store.VersionError)) && data == nil {
		return r, w.disk.undecided(modelsDir,
			damage.Error()+", so another version of the program wrote it: finish the run with that one", damage)
	}
	if data == nil {
		return w.fallBack(r, versions, damage, tell)
	}
	aside, err := w.disk.models.SetAside(uint64(p.Version))
	if err != nil {
		return r, err
	}
	tell(StateMended{File: StateModel, Damage: damage, Aside: first(aside), Before: p.Version, Version: p.Version})
	file, err := encodeModel(p.Version, w.problem, data, w.disk.origin)
	if err == nil {
		err = w.disk.models.Put(uint64(p.Version), p.Base.Hash, file)
	}
	return r, errors.Join(err, w.useModel(data))
}

func first(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// useModel makes data the base of the round.
func (w *workbench) useModel(data []byte) error {
	base := make([]float32, len(data)/4)
	s := w.problem.Schema(wire.KindTraining)
	w.base, w.baseBlob = base, newBlob(data, s.Hash())
	return wire.DecodeVector(base, data)
}

// fallBack ends the journaled round, whose model is lost, and returns a record that stands before the round after it,
// on the newest sound model: an older one if there is one. The updates that were accepted for the round are lost with
// its model.
func (w *workbench) fallBack(r round.Record, versions []uint64, damage error, tell func(Fact)) (round.Record, error) {
	p := &r.Plan
	s := w.problem.Schema(wire.KindTraining)
	var found *storedModel
	for _, v := range versions {
		if found != nil && found.version < uint64(p.Version) && v > uint64(p.Version) {
			break
		}
		if m, err := w.disk.readModel(w.disk.models, v); err == nil && m.fits(s) {
			found = m
		}
	}
	if found == nil {
		return r, w.disk.undecided(modelsDir,
			fmt.Sprintf("model %s of the run is lost (%v), and no other one of that run is sound",
				modelName(r.Run, uint64(p.Version)), damage), damage)
	}
	aside, err := w.disk.models.SetAside(uint64(p.Version))
	if err != nil {
		return r, err
	}
	data := found.vector(s)
	if err := w.useModel(data); err != nil {
		return r, err
	}
	lost, version := p.Version, wire.ModelVersion(found.version)
	offset := p.Offset - uint64(lost)*w.stepsPerRound() + uint64(version)*w.stepsPerRound()
	tell(StateMended{File: StateModel, Damage: damage, Aside: first(aside), Before: lost, Version: version})
	r.Phase, r.Plan = round.CoordinatorIdle, w.plan(version, offset, w.base, data)
	r.Participants, r.Edges, r.Block, r.Drawn = nil, nil, 0, 0
	return r, nil
}
