package store

import "path/filepath"

// StateFile describes a file of a state folder. The file contains either a record that SaveStateFile replaces as a
// whole, or a record in slots that are overwritten in place (Disk.NewRecordSlots). The package that uses the file
// encodes and decodes its content.
type StateFile struct {
	Name string
	// Version is the format version. Loading a file with another version returns a *FormatVersionError.
	Version uint16
	// MaxBytes is the maximum length of the content.
	MaxBytes int
	// Slots is the number of copies that are written alternately, so that one copy is always complete. Zero means that
	// the file is replaced as a whole.
	Slots int
	// LossConsequence describes the effect of losing the file, for messages and documentation.
	LossConsequence string
	// Large indicates that the file is deleted when it is damaged. Other damaged files are renamed, so that an operator
	// can examine them.
	Large bool
}

// SaveStateFile replaces a file without slots, atomically and durably.
func (d Disk) SaveStateFile(dir string, f *StateFile, body []byte) error {
	return d.SaveRecord(filepath.Join(dir, f.Name), f.Version, body)
}

// LoadStateFile returns the content of a file without slots. It returns ErrNoRecord if the file does not exist, a
// *CorruptError, a *FormatVersionError or a read error.
func (d Disk) LoadStateFile(dir string, f *StateFile) ([]byte, error) {
	path := filepath.Join(dir, f.Name)
	version, body, err := d.LoadRecord(path, f.MaxBytes)
	if err == nil && version != f.Version {
		return nil, &FormatVersionError{path, version, f.Version}
	}
	return body, err
}
