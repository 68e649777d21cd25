package state

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
)

// Folder is the folder in which one agent stores its state on disk.
type Folder struct {
	Disk     store.Disk
	Dir      string
	Volatile bool             // true if the folder does not survive a power cut
	Observer observe.Observer // receives an event for each lost file
}

// FilePath returns the path of a file in the folder.
func (f Folder) FilePath(name string) string { return filepath.Join(f.Dir, name) }

// SaveFile replaces the content of a file that has no slots.
func (f Folder) SaveFile(file *store.StateFile, body []byte) error {
	return f.Disk.SaveStateFile(f.Dir, file, body)
}

// LoadFile reads a file without slots and passes its content to decode. It ignores a missing file and reports a damaged
// file as FileLost. It returns only disk errors.
func (f Folder) LoadFile(file *store.StateFile, decode func(body []byte) error) error {
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
	f.reportLostFile(file, err)
	path := f.FilePath(file.Name)
	if file.Large {
		return f.Disk.Remove(path)
	}
	_, err = f.Disk.SetAsideFile(path)
	return err
}

// RemoveFile removes a file if it exists.
func (f Folder) RemoveFile(name string) error {
	if err := f.Disk.Remove(f.FilePath(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (f Folder) reportLostFile(file *store.StateFile, err error) {
	f.Observer.Observe(FileLost{File: file.Name, Err: err, Consequence: file.LossConsequence})
}

// FileSlots manages the slots of a file, which are alternating copies of its content.
type FileSlots struct {
	file   *store.StateFile
	folder Folder
	slots  *store.RecordSlots
}

// OpenSlots returns the slots of a file, which are alternating copies of its content.
func (f Folder) OpenSlots(file *store.StateFile) *FileSlots {
	return &FileSlots{file, f, f.Disk.NewRecordSlots(f.Dir, file)}
}

// Save writes the concatenated parts to the next slot of the file.
func (s *FileSlots) Save(parts ...[]byte) error { return s.slots.WriteAndProtect(parts...) }

// Load reads a file with slots and otherwise works like [Folder.LoadFile]. The loaded content survives a power cut.
func (s *FileSlots) Load(decode func(body []byte) error) error {
	path := s.folder.FilePath(s.file.Name)
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
	s.folder.reportLostFile(s.file, err)
	if s.file.Large {
		return s.slots.Clear()
	}
	_, err = s.slots.SetAside()
	return err
}

// Clear removes all slots of the file.
func (s *FileSlots) Clear() error { return s.slots.Clear() }
