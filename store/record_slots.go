package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"
)

// RecordSlots stores a record in preallocated files that are overwritten in place. A write therefore requires only one
// fdatasync, because no file name changes and no disk block is allocated. With two copies, writes alternate between
// them, so that a torn write leaves the other copy intact. With one copy, a torn write loses the record.
//
// The files are PATH.a and PATH.b. Each is created with a durable atomic write.
//
// Layout of a copy, little endian: magic (4) | version (2) | zero (2) | sequence (8) | body length (8) | body | CRC-32C
// of all preceding bytes (4). Trailing bytes are ignored. A copy that starts with zeros is empty. The CRC-32C detects
// torn writes. A body that requires stronger protection must contain its own hash.
type RecordSlots struct {
	mu                  sync.Mutex
	disk                Disk
	file                *StateFile
	path                string // path without the suffix of the copy
	isNameDurableByCopy []bool // whether this process has made the name of each copy durable
	newestSequence      uint64 // sequence number of the newest copy
	lastWrittenCopy     int    // index of the copy that was written last
	protectedCopy       int    // index of the copy that must not be overwritten, or noCopy
}

// SavedRecord is a record loaded from RecordSlots.
type SavedRecord struct {
	Body []byte
	// NewerCopyDamage is the error of a newer copy that is torn or corrupted; nil if no newer copy is damaged.
	NewerCopyDamage error
}

const (
	slotMagic        = "FMS1"
	slotHeadSize     = len(slotMagic) + 2 + 2 + 8 + 8
	slotChecksumSize = 4
	slotBlockSize    = 4 << 10 // file lengths are multiples of this size
	noCopy           = -1
)

// NewRecordSlots returns the slots of f in the folder dir. f.Slots must be 1 or 2. It does not read or create files.
func (d Disk) NewRecordSlots(dir string, f *StateFile) *RecordSlots {
	return &RecordSlots{disk: d, file: f, path: filepath.Join(dir, f.Name), isNameDurableByCopy: make([]bool, f.Slots),
		protectedCopy: noCopy, lastWrittenCopy: noCopy}
}

func (s *RecordSlots) copyPath(i int) string { return s.path + "." + string(rune('a'+i)) }

// Load returns the newest valid record. Later writes do not overwrite the copy that contains this record, until
// ProtectNewest is called. Load returns ErrNoRecord if no record exists, a *CorruptError if no copy is valid, and a
// *FormatVersionError if the newest valid copy has another format version.
//
// If want is not nil, Load returns the newest valid record of the file's version for which want returns true, or
// ErrNoRecord if want returns false for all records.
func (s *RecordSlots) Load(want func(body []byte) bool) (SavedRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.protectedCopy, s.lastWrittenCopy = noCopy, noCopy
	copies, damaged, err := s.readHeaders()
	if err != nil {
		return SavedRecord{}, err
	}
	for _, c := range copies {
		found, err := s.readRecord(c)
		if errors.As(err, new(*CorruptError)) {
			damaged = errors.Join(damaged, err)
			continue
		}
		if err != nil {
			return SavedRecord{}, err
		}
		s.newestSequence = max(s.newestSequence, c.sequence)
		if want != nil && (c.formatVersion != s.file.Version || !want(found.Body)) {
			continue
		}
		s.protectedCopy, s.lastWrittenCopy, found.NewerCopyDamage = c.copyIndex, c.copyIndex, damaged
		if c.formatVersion != s.file.Version {
			return SavedRecord{}, &FormatVersionError{s.path, c.formatVersion, s.file.Version}
		}
		return found, nil
	}
	if damaged != nil {
		return SavedRecord{}, damaged
	}
	return SavedRecord{}, fmt.Errorf("store: %w at %s", ErrNoRecord, s.path)
}

// slotHeader is the header of a copy. Its checksum has not been verified yet.
type slotHeader struct {
	copyIndex        int
	encodedHead      []byte
	formatVersion    uint16
	sequence, length uint64
}

// readHeaders returns the headers of the non-empty copies, newest first. damaged contains the errors of damaged copies.
func (s *RecordSlots) readHeaders() (found []slotHeader, damaged, err error) {
	for i := range s.isNameDurableByCopy {
		h, err := s.readHeader(i)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		switch {
		case errors.As(err, new(*CorruptError)):
			damaged = errors.Join(damaged, err)
		case err != nil:
			return nil, nil, err
		case h.sequence > 0: // a sequence number of 0 means an empty copy
			found = append(found, h)
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].sequence > found[j].sequence })
	return found, damaged, nil
}

func (s *RecordSlots) readHeader(i int) (slotHeader, error) {
	h := slotHeader{copyIndex: i, encodedHead: make([]byte, slotHeadSize)}
	if err := s.readAt(i, h.encodedHead, 0); err != nil {
		return h, err
	}
	h.formatVersion = binary.LittleEndian.Uint16(h.encodedHead[len(slotMagic):])
	h.sequence = binary.LittleEndian.Uint64(h.encodedHead[len(slotMagic)+4:])
	h.length = binary.LittleEndian.Uint64(h.encodedHead[slotHeadSize-8:])
	switch {
	case bytes.Equal(h.encodedHead, make([]byte, slotHeadSize)):
	case string(h.encodedHead[:len(slotMagic)]) != slotMagic || h.sequence == 0:
		return h, &CorruptError{s.copyPath(i), "not a record"}
	case h.length > uint64(min(s.file.MaxBytes, math.MaxInt-slotHeadSize-slotChecksumSize)):
		return h, &CorruptError{s.copyPath(i), fmt.Sprintf("the file is longer than %d bytes", s.file.MaxBytes)}
	}
	return h, nil
}

// readRecord verifies the copy with header h and returns the record in it.
func (s *RecordSlots) readRecord(h slotHeader) (SavedRecord, error) {
	rest := make([]byte, int(h.length)+slotChecksumSize)
	if err := s.readAt(h.copyIndex, rest, int64(slotHeadSize)); err != nil {
		return SavedRecord{}, err
	}
	body := rest[:h.length:h.length]
	sum := crc32.Update(crc32.Checksum(h.encodedHead, castagnoli), castagnoli, body)
	if sum != binary.LittleEndian.Uint32(rest[h.length:]) {
		return SavedRecord{}, &CorruptError{s.copyPath(h.copyIndex), "checksum mismatch"}
	}
	return SavedRecord{Body: body}, nil
}

func (s *RecordSlots) readAt(i int, p []byte, at int64) error {
	f, err := s.disk.OpenFile(s.copyPath(i), os.O_RDONLY, 0)
	if err != nil {
		return explainFileError("open", s.copyPath(i), err)
	}
	_, err = f.ReadAt(p, at)
	closed := f.Close()
	switch {
	case errors.Is(err, io.EOF):
		return &CorruptError{s.copyPath(i), "the file is too short for a record"}
	case err != nil:
		return explainFileError("read", s.copyPath(i), err)
	}
	return closed
}

// WriteAndProtect calls Write and then ProtectNewest.
func (s *RecordSlots) WriteAndProtect(pieces ...[]byte) error {
	err := s.Write(pieces...)
	if err == nil {
		s.ProtectNewest()
	}
	return err
}

// ProtectNewest protects the copy that was written last from being overwritten. It removes the protection of the other
// copy.
func (s *RecordSlots) ProtectNewest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.protectedCopy = s.lastWrittenCopy
}

// Write writes a record durably over a copy that is not protected. The pieces together form the body. After an error
// the content of that copy is undefined.
func (s *RecordSlots) Write(pieces ...[]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := 0
	if len(s.isNameDurableByCopy) > 1 && s.protectedCopy == 0 {
		i = 1
	}
	s.lastWrittenCopy = noCopy
	s.newestSequence++
	p := s.encode(pieces)
	err := s.updateCopy(i, func(f File) error { return writeSlotCopy(f, p) })
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.createCopy(i, p); err != nil {
			return err
		}
	} else if err != nil {
		return explainFileError("write", s.copyPath(i), err)
	}
	s.lastWrittenCopy = i
	return nil
}

// MakeDurable fsyncs the record that Load returned, because the process that wrote it may have died before its
// fdatasync.
func (s *RecordSlots) MakeDurable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.protectedCopy == noCopy {
		return nil
	}
	if err := s.updateCopy(s.protectedCopy, func(File) error { return nil }); err != nil {
		return explainFileError("fsync", s.copyPath(s.protectedCopy), err)
	}
	return nil
}

// updateCopy opens copy i, calls change and syncs the file. The first time, it also fsyncs the folder, because an
// earlier process may have created the file without making its name durable.
func (s *RecordSlots) updateCopy(i int, change func(f File) error) error {
	f, err := s.disk.OpenFile(s.copyPath(i), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err = change(f); err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil && !s.isNameDurableByCopy[i] {
		err = s.disk.SyncDir(filepath.Dir(s.path))
		s.isNameDurableByCopy[i] = err == nil
	}
	return err
}

// encode returns the bytes of a copy: header, body pieces and checksum.
func (s *RecordSlots) encode(pieces [][]byte) [][]byte {
	length := 0
	for _, p := range pieces {
		length += len(p)
	}
	head := append(make([]byte, 0, slotHeadSize), slotMagic...)
	head = binary.LittleEndian.AppendUint16(head, s.file.Version)
	head = binary.LittleEndian.AppendUint16(head, 0)
	head = binary.LittleEndian.AppendUint64(head, s.newestSequence)
	head = binary.LittleEndian.AppendUint64(head, uint64(length))
	all, sum := slices.Concat([][]byte{head}, pieces), uint32(0)
	for _, p := range all {
		sum = crc32.Update(sum, castagnoli, p)
	}
	return append(all, binary.LittleEndian.AppendUint32(nil, sum))
}

// writeSlotCopy writes a copy at the start of its file. If the file is too short, it extends the file with zeros to
// slotFileSize.
func writeSlotCopy(f File, pieces [][]byte) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	end := int64(0)
	for _, p := range pieces {
		if _, err := f.WriteAt(p, end); err != nil {
			return err
		}
		end += int64(len(p))
	}
	if more := slotFileSize(end) - end; end > info.Size() {
		_, err = f.WriteAt(make([]byte, more), end)
	}
	return err
}

// slotFileSize returns the file length in bytes for a copy of the given length, with spare space for growth.
func slotFileSize(length int64) int64 {
	return (length + min(length/4, 64<<10) + slotBlockSize - 1) / slotBlockSize * slotBlockSize
}

func (s *RecordSlots) createCopy(i int, pieces [][]byte) error {
	length := int64(0)
	for _, p := range pieces {
		length += int64(len(p))
	}
	spare := make([]byte, slotFileSize(length)-length)
	err := s.disk.replaceFile(s.copyPath(i), append(slices.Clip(pieces), spare), 0o600, true)
	s.isNameDurableByCopy[i] = err == nil
	return err
}

// Clear empties all copies without fsync. After a power cut the record may therefore reappear.
func (s *RecordSlots) Clear() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.protectedCopy, s.lastWrittenCopy = noCopy, noCopy
	for i := range s.isNameDurableByCopy {
		f, err := s.disk.OpenFile(s.copyPath(i), os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			_, err = f.WriteAt(make([]byte, slotHeadSize), 0)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return explainFileError("write", s.copyPath(i), err)
		}
	}
	return nil
}

// SetAside renames all copies durably, whether valid or damaged. It returns the new path of the first copy, or "" if no
// copy exists.
func (s *RecordSlots) SetAside() (aside string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.protectedCopy, s.lastWrittenCopy = noCopy, noCopy
	for _, path := range []string{s.copyPath(0), s.copyPath(1)} {
		now, err := s.disk.SetAsideFile(path)
		if err != nil {
			return aside, err
		}
		if aside == "" {
			aside = now
		}
	}
	return aside, nil
}
