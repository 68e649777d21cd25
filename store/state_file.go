package store

import "path/filepath"

// StateFile describes a file of a state folder. It is either a record that SaveStateFile replaces as a whole, or a
// record in slots (Disk.NewRecordSlots). The package that uses the file encodes and decodes its content.
type StateFile struct {
	Name string
	// Version is the version of the format. Loading a file of another version returns a *FormatVersionError.
	Version uint16
	// MaxBytes limits the length of the content.
	MaxBytes int
	// Slots is the number of copies that are written in turn, so that one is complete at any time. 0 = no slots.
	Slots int
	// LossConsequence is the behaviour of the program if the file is lost, for messages and documentation.
	LossConsequence string
	// Large files are removed when they are damaged. The others are set aside, so that a person can examine them.
	Large bool
}

// SaveStateFile replaces a file without slots, atomically and durably.
func (d Disk) SaveStateFile(dir string, f *StateFile, body []byte) error {
	return d.SaveRecord(filepath.Join(dir, f.Name), f.Version, body)
}

// LoadStateFile returns the content of a file without slots. The error is ErrNoRecord if there is no file, a
// *CorruptError, a *FormatVersionError, or the error of the disk.
func (d Disk) LoadStateFile(dir string, f *StateFile) ([]byte, error) {
	path := filepath.Join(dir, f.Name)
	version, body, err := d.LoadRecord(path, f.MaxBytes)
	if err == nil && version != f.Version {
		return nil, &FormatVersionError{path, version, f.Version}
	}
	return body, err
}
