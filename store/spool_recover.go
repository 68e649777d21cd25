package store

import (
	"fmt"
	"hash/crc32"
	"io"
	"math"
)

// recoverLog rebuilds the index from the log and truncates the log after the last valid entry.
func (s *UpdateSpool) recoverLog(logger func(string)) error {
	info, err := s.logFile.Stat()
	if err != nil {
		return explainFileError("open", s.logPath, err)
	}
	size := info.Size()
	scanned, err := s.scanLog(size, logger)
	if err != nil {
		return explainFileError("read", s.logPath, err)
	}
	if scanned < size {
		logger(fmt.Sprintf("%s: incomplete or damaged entry at byte %d: dropped the entry and all following entries "+
			"(%d bytes)",
			s.logPath, scanned, size-scanned))
	}
	if s.logEndOffset < size {
		if err := s.logFile.Truncate(s.logEndOffset); err != nil {
			return explainFileError("truncate", s.logPath, err)
		}
	}
	return nil
}

// scanLog indexes the valid entries and sets s.logEndOffset to the end of the last valid entry. It returns the offset
// at which scanning stopped. Read errors are returned: they must not be treated as damage, because the data would be
// cut off.
func (s *UpdateSpool) scanLog(size int64, logger func(string)) (stop int64, err error) {
	head := make([]byte, spoolEntryHeadSize)
	for at := int64(0); at < size; {
		if size-at < int64(spoolEntryHeadSize) {
			return at, nil
		}
		if _, err := s.logFile.ReadAt(head, at); err != nil {
			return at, err
		}
		h, ok := decodeSpoolEntryHead(s.id, head, size-at)
		if !ok {
			return at, nil
		}
		found, sound, err := s.readEntry(h, at)
		if err != nil {
			return at, err
		}
		next := at + h.logEntryLen()
		if sound {
			s.indexEntry(found, next, logger)
		} else {
			logger(fmt.Sprintf("%s: damaged entry at byte %d: dropped the entry (%d bytes)", s.logPath, at, next-at))
		}
		at = next
	}
	return size, nil
}

// indexEntry adds a recovered entry to the index and advances the end of the log to end. If the index already has an
// entry of the same agent, indexEntry keeps that entry and reports the new one.
func (s *UpdateSpool) indexEntry(found payloadLocation, end int64, logger func(string)) {
	s.logEndOffset = end
	if old, have := s.locationByAgent[found.Agent]; have {
		logger(fmt.Sprintf("%s: ignored a second update %x of %s: kept the first update, %x",
			s.logPath, found.PayloadDigest,
			found.Agent,
			old.PayloadDigest))
		return
	}
	s.locationByAgent[found.Agent] = found
}

// readEntry reads and verifies the entry with head h at offset at. The payload is read through a small buffer. sound is
// false if a checksum does not match or the separate file is missing.
func (s *UpdateSpool) readEntry(h spoolEntryHead, at int64) (found payloadLocation, sound bool, err error) {
	names := make([]byte, h.agentLen+h.manifestLen)
	at += int64(spoolEntryHeadSize)
	if _, err := s.logFile.ReadAt(names, at); err != nil {
		return payloadLocation{}, false, err
	}
	e := SpoolEntry{Agent: string(names[:h.agentLen]), PayloadDigest: h.payloadDigest,
		SignedManifest: names[h.agentLen:],
		PayloadSize:    h.payloadLen}
	found = payloadLocation{SpoolEntry: e, offset: at + int64(len(names)), isInOwnFile: h.isInOwnFile}
	// A payload that a 64-bit build stored may be too large for a 32-bit build.
	if crc32.Checksum(names, castagnoli) != h.agentAndManifestChecksum || h.payloadLen > math.MaxInt {
		return found, false, nil
	}
	if h.isInOwnFile {
		found.checksums, sound, err = s.checkLargeUpdate(e)
	} else {
		found.checksums, sound, err = verifyPayload(e, io.NewSectionReader(s.logFile, found.offset, h.payloadLen))
	}
	return found, sound, err
}
