package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
)

// Layout of a record file in little-endian order, with sizes in bytes: magic (4) | version (2) | body length (4) | body
// | SHA-256 of all preceding bytes (32).
const (
	recordMagic    = "FMR1"
	recordHeadSize = len(recordMagic) + 2 + 4
	recordOverhead = recordHeadSize + sha256.Size
	maxRecordLen   = math.MaxInt32 - recordOverhead
)

// SaveRecord replaces the record at path with body, atomically and durably. version is the caller's version of the body
// format.
func (d Disk) SaveRecord(path string, version uint16, body []byte) error {
	return d.saveRecord(path, version, body, true)
}

func (d Disk) saveRecord(path string, version uint16, body []byte, durable bool) error {
	if len(body) > maxRecordLen {
		return fmt.Errorf("store: write %s: a record of %d bytes exceeds the limit of %d", path, len(body),
			maxRecordLen)
	}
	p := make([]byte, 0, recordOverhead+len(body))
	p = append(p, recordMagic...)
	p = binary.LittleEndian.AppendUint16(p, version)
	p = binary.LittleEndian.AppendUint32(p, uint32(len(body)))
	p = append(p, body...)
	sum := sha256.Sum256(p)
	return d.replaceFile(path, [][]byte{p, sum[:]}, 0o600, durable)
}

// LoadRecord reads the record at path. Its body may have at most maxBytes bytes. It returns ErrNoRecord if the file
// does not exist, and a *CorruptError if the file is torn, corrupted or too long.
func (d Disk) LoadRecord(path string, maxBytes int) (version uint16, body []byte, err error) {
	f, err := d.OpenFile(path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil, fmt.Errorf("store: %w at %s", ErrNoRecord, path)
	}
	if err != nil {
		return 0, nil, explainFileError("read", path, err)
	}
	limit := recordOverhead + min(maxBytes, maxRecordLen)
	p, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, nil, explainFileError("read", path, err)
	}
	if len(p) > limit {
		return 0, nil, &CorruptError{path, fmt.Sprintf("the file is longer than %d bytes", limit)}
	}
	version, body, reason := parseRecord(p)
	if reason != "" {
		return 0, nil, &CorruptError{path, reason}
	}
	return version, body, nil
}

// parseRecord returns the version and body of the record p. If p is not a valid record, reason describes the problem.
func parseRecord(p []byte) (version uint16, body []byte, reason string) {
	if len(p) < recordOverhead {
		return 0, nil, "the file is too short for a record"
	}
	if string(p[:len(recordMagic)]) != recordMagic {
		return 0, nil, "not a record"
	}
	rest := p[len(recordMagic):]
	version = binary.LittleEndian.Uint16(rest)
	if n := binary.LittleEndian.Uint32(rest[2:]); int64(n) != int64(len(p)-recordOverhead) {
		return 0, nil, "the file length does not match the record header"
	}
	end := len(p) - sha256.Size
	if sum := sha256.Sum256(p[:end]); !bytes.Equal(sum[:], p[end:]) {
		return 0, nil, "checksum mismatch"
	}
	return version, p[recordHeadSize:end:end], ""
}
