package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
)

const bootVersion = 1

// NextBoot returns the boot epoch of this start: one more than the last that was saved in dir, and saved, fsynced,
// before it is returned; the first is 1. A damaged counter is an error and not a restart from 1: an epoch that was
// used before would make peers take this start for the old one.
func NextBoot(dir string) (uint64, error) {
	path := filepath.Join(dir, "boot")
	var last uint64
	version, body, err := LoadRecord(path, 8)
	switch {
	case errors.Is(err, ErrNoRecord):
	case err != nil:
		return 0, err
	case version != bootVersion || len(body) != 8:
		return 0, &CorruptError{path, fmt.Sprintf("not a boot counter of version %d", bootVersion)}
	default:
		last = binary.LittleEndian.Uint64(body)
	}
	next := last + 1
	if err := SaveRecord(path, bootVersion, binary.LittleEndian.AppendUint64(nil, next)); err != nil {
		return 0, err
	}
	return next, nil
}
