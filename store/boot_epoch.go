package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
)

const bootRecordVersion = 1

// BootEpochFile is the name of the counter of starts.
const BootEpochFile = "boot"

// NextBootEpoch returns the boot epoch of this start: one more than the last that was saved in dir, and saved, fsynced,
// before it is returned. Without a counter it is 1, and lost says why there is none: ErrNoRecord at a first start and
// on a new disk, a *CorruptError for a damaged one, which is set aside. Peers take an epoch that was used before for
// the old start: a program that finds a higher one raises the counter with SaveBootEpochAfter.
func (d Disk) NextBootEpoch(dir string) (epoch uint64, lost, err error) {
	path := filepath.Join(dir, BootEpochFile)
	version, body, err := d.LoadRecord(path, 8)
	if err == nil && (version != bootRecordVersion || len(body) != 8) {
		err = &CorruptError{path, fmt.Sprintf("not a boot counter of version %d", bootRecordVersion)}
	}
	corrupt := (*CorruptError)(nil)
	switch {
	case err == nil:
		epoch, err = d.SaveBootEpochAfter(dir, binary.LittleEndian.Uint64(body))
		return epoch, nil, err
	case errors.As(err, &corrupt):
		lost = err
		_, err = d.SetAsideFile(path)
	case errors.Is(err, ErrNoRecord):
		lost, err = err, nil
	}
	if err != nil {
		return 0, nil, err
	}
	epoch, err = d.SaveBootEpochAfter(dir, 0)
	return epoch, lost, err
}

// SaveBootEpochAfter saves, fsynced, and returns the boot epoch after last.
func (d Disk) SaveBootEpochAfter(dir string, last uint64) (uint64, error) {
	next := last + 1
	return next, d.SaveRecord(filepath.Join(dir, BootEpochFile), bootRecordVersion,
		binary.LittleEndian.AppendUint64(nil, next))
}
