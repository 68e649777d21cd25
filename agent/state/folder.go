package state

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
)

// Folder is the state folder of one agent.
type Folder struct {
	Disk     store.Disk
	Dir      string
	Volatile bool             // the folder does not survive a power cut
	Observer observe.Observer // hears of files that are lost
}

// Path returns the path of a file in the folder.
func (f Folder) Path(name string) string { return filepath.Join(f.Dir, name) }

// Save replaces a file that has no slots.
func (f Folder) Save(file *store.StateFile, body []byte) error {
	return f.Disk.SaveStateFile(f.Dir, file, body)
}

// Load has decode read a file that has no slots. A file that is missing, damaged or of another version is not an error:
// it is reported as FileLost unless it is missing. The error is that the disk cannot be read or written.
func (f Folder) Load(file *store.StateFile, decode func(body []byte) error) error {
	body, err := f.Disk.LoadStateFile(f.Dir, file)
	switch {
	case errors.Is(err, store.ErrNoRecord):
		return nil
	case err == nil:
		if err = decode(body); err == nil {
			return nil
		}
	case !store.IsDamage(err):
		return err
	}
	f.reportLoss(file, err)
	path := f.Path(file.Name)
	if file.Large {
		return f.Disk.Remove(path)
	}
	_, err = f.Disk.SetAsideFile(path)
	return err
}

// Remove removes a file that may not be there.
func (f Folder) Remove(name string) error {
	if err := f.Disk.Remove(f.Path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (f Folder) reportLoss(file *store.StateFile, err error) {
	f.Observer.Observe(FileLost{File: file.Name, Err: err, Consequence: file.LossConsequence})
}

// Slots are the copies of a file that has slots.
type Slots struct {
	file   *store.StateFile
	folder Folder
	slots  *store.RecordSlots
}

// Slots returns the copies of a file.
func (f Folder) Slots(file *store.StateFile) *Slots {
	return &Slots{file, f, f.Disk.NewRecordSlots(f.Dir, file)}
}

// Save writes the parts, one after another, into the slot whose turn it is.
func (s *Slots) Save(parts ...[]byte) error { return s.slots.WriteAndProtect(parts...) }

// Load is Folder.Load for a file with slots. What it has decoded survives a power cut.
func (s *Slots) Load(decode func(body []byte) error) error {
	path := s.folder.Path(s.file.Name)
	found, err := s.slots.Load(nil)
	switch {
	case errors.Is(err, store.ErrNoRecord):
		return nil
	case err == nil:
		if err = decode(found.Body); err == nil {
			return s.slots.MakeDurable()
		}
		err = &store.CorruptError{Path: path, Reason: err.Error()}
	}
	if !store.IsDamage(err) {
		return err
	}
	s.folder.reportLoss(s.file, err)
	if s.file.Large {
		return s.slots.Clear()
	}
	_, err = s.slots.SetAside()
	return err
}

// Clear removes all copies.
func (s *Slots) Clear() error { return s.slots.Clear() }
