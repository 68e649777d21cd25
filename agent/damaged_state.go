package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// StateFiles returns the names of the files in an agent's state folder that may
// be damaged, for closed label sets. The caller reads the counter of starts
// (store.Disk.NextBoot). Files into which blobs are pulled are not listed: their chunks
// are held against hashes that come from elsewhere.
func StateFiles() []string {
	return []string{store.BootFile, obeyedPositionFile, updateFile, feedbackFile, blockFile, budgetFile, heldOutFile,
		rootFile,
		clockFile, groupsFile, keyFile, certificateFile, attestationFile, personalFile}
}

// consequenceByFile describes what the agent does without a damaged file.
var consequenceByFile = map[string]string{
	store.BootFile:     "starts are counted from 1 until the broker delivers a presence of an earlier start",
	obeyedPositionFile: "the agent obeys the next announcement that the coordinator has signed, even an old one",
	updateFile:         "the agent trains again for the round if it is invited",
	feedbackFile:       "the unsent residual of earlier updates is lost",
	blockFile:          "mixing begins with the parameters of a neighbour or of the coordinator",
	budgetFile:         "the bytes of this month are counted from 0",
	rootFile:           "the root document of the configuration is in force until later ones arrive again",
	keyFile:            "the key of the configuration is used",
	certificateFile:    "the certificate of the configuration is used",
	clockFile:          "certificates are checked with the machine's clock until an announcement arrives",
	attestationFile:    "neighbours ignore the agent's beacons until the coordinator invites it again",
	groupsFile:         "the agent asks the coordinator for the group key again",
	personalFile:       "the personal parameters of the model are initialised again",
	heldOutFile:        "the held-out rows are chosen again from the present rows",
}

// readStateRecord reads a file of the state folder. A file that is damaged, or of another
// version, is set aside or, if it may be large, removed, and counts as missing: a
// device does not wait for a person to come. Only a disk that cannot be read or
// written is an error.
func (c *Config) readStateRecord(name string, want uint16, most int, parse func(body []byte) error) error {
	path := filepath.Join(c.Dir, name)
	version, body, err := c.Disk.LoadRecord(path, most)
	switch {
	case errors.Is(err, store.ErrNoRecord):
		return nil
	case err == nil && version != want:
		err = &store.VersionError{Path: path, FileVersion: version, SupportedVersion: want}
	case err == nil:
		if err = parse(body); err == nil {
			return nil
		}
	case !errors.As(err, new(*store.CorruptError)):
		return err
	}
	c.Observer.Observe(StateLost{File: name, Err: err, Consequence: consequenceByFile[name]})
	if name == blockFile || name == feedbackFile {
		return c.Disk.Remove(path)
	}
	_, err = c.Disk.SetAside(path)
	return err
}

// readStateSlots is readStateRecord for a file in slots. What it returns is durable.
func (c *Config) readStateSlots(s *store.RecordSlots, name string, most int, parse func(body []byte) error) error {
	path := filepath.Join(c.Dir, name)
	found, err := s.Load(most, nil)
	switch {
	case errors.Is(err, store.ErrNoRecord):
		return nil
	case err == nil && found.Version != slotVersion:
		err = &store.VersionError{Path: path, FileVersion: found.Version, SupportedVersion: slotVersion}
	case err == nil:
		if err = parse(found.Body); err == nil {
			return s.MakeDurable()
		}
		err = &store.CorruptError{Path: path, Reason: err.Error()}
	}
	if !errors.As(err, new(*store.CorruptError)) && !errors.As(err, new(*store.VersionError)) {
		return err
	}
	c.Observer.Observe(StateLost{File: name, Err: err, Consequence: consequenceByFile[name]})
	if name == updateFile || name == personalFile { // they may be large
		return s.Clear()
	}
	_, err = s.SetAside()
	return err
}

// removeStateFile removes a file of the state folder that may not be there.
func (c *Config) removeStateFile(name string) error {
	if err := c.Disk.Remove(filepath.Join(c.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// BootCounterLostError ends an agent that found, retained at the broker, a presence of an
// earlier start of its own with this epoch: its counter of starts was lost, or an
// older copy put back. It must start again, above that.
type BootCounterLostError struct{ Epoch wire.Epoch }

func (e *BootCounterLostError) Error() string {
	return fmt.Sprintf("agent: the broker has a presence of start %d of this agent: its counter of starts is behind",
		e.Epoch)
}

// BootCounterLost returns the event of a damaged counter of starts. err is the error of store.Disk.NextBootEpoch.
func BootCounterLost(err error) StateLost {
	return StateLost{File: store.BootFile, Err: err, Consequence: consequenceByFile[store.BootFile]}
}

var (
	lostStateFiles = observe.CounterByLabel("state_files_lost_total",
		"Files in the state folder that were damaged or of another version at this start, and are done without.",
		"file", StateFiles())
	raisedStartCounters = observe.Counter("starts_raised_total",
		"Times that the broker had a presence of an earlier start with a higher number, so that the counter of "+
			"starts was raised.")
)

// StateLost: a file of the state folder is damaged or of another version, and the agent continues without it.
type StateLost struct {
	File        string // one of StateFiles
	Err         error
	Consequence string // what the agent does without the file
}

// Describe implements observe.Event. The condition lasts until the next start.
func (e StateLost) Describe(d *observe.Description) {
	d.Inc(lostStateFiles, e.File)
	d.Log(observe.Error, "file in the state folder cannot be used", "file", e.File, "err", e.Err,
		"consequence", e.Consequence)
	remedy := "check the disk of state_dir; the agent continues without the file"
	if e.File == keyFile {
		remedy = "if the coordinator ignores the device, " + joinAgain
	}
	d.Fail("file "+e.File, fmt.Sprintf("the file %s in the state folder could not be used: %s", e.File, e.Consequence),
		remedy)
}

// BootRaised: an earlier start of the agent had a higher number than this start, so the counter of starts was raised.
type BootRaised struct{ From, To wire.Epoch }

// Describe implements observe.Event. The condition lasts until the next start.
func (e BootRaised) Describe(d *observe.Description) {
	d.Inc(raisedStartCounters)
	d.Log(observe.Warn, "counter of starts raised", "from", e.From, "to", e.To,
		"cause", "an earlier start had a higher number: the counter was lost or is an older copy")
	d.Fail("start counter",
		fmt.Sprintf("the counter of starts was lost or is an older copy: it was raised from %d to %d",
			e.From, e.To), "keep state_dir on a disk that survives restarts, and do not restore it from a backup")
}
