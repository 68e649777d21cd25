package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
)

const bootRecordVersion = 1

// BootEpochFile is the name of the file that counts the starts of the daemon.
const BootEpochFile = "boot"

// NextBootEpoch returns the boot epoch (number of the daemon's start), which is the last saved epoch plus one. It saves
// and fsyncs the new epoch first. If the last epoch cannot be read, the new epoch is 1 and lost is the reason:
// ErrNoRecord for a missing file, or a *CorruptError for a damaged file, which is renamed. Peers mistake a reused epoch
// for an earlier start. A program that learns of a higher epoch must therefore call SaveBootEpochAfter.
func (d Disk) NextBootEpoch(dir string) (epoch uint64, lost, err error) {
	path := filepath.Join(dir, BootEpochFile)
	version, body, err := d.LoadRecord(path, 8)
	if err == nil && (version != bootRecordVersion || len(body) != 8) {
		err = &CorruptError{path, fmt.Sprintf("the file does not contain a boot counter of version %d",
			bootRecordVersion)}
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

// SaveBootEpochAfter saves last+1 durably as the boot epoch and returns it.
func (d Disk) SaveBootEpochAfter(dir string, last uint64) (uint64, error) {
	next := last + 1
	return next, d.SaveRecord(filepath.Join(dir, BootEpochFile), bootRecordVersion,
		binary.LittleEndian.AppendUint64(nil, next))
}
