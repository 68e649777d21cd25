package store

import (
	"bytes"
	"fmt"
	"hash/crc32"
)

// Put stores an update without fsync. The caller must have verified its digest. Storing the same update again succeeds.
// Storing an update with a different digest for the same agent returns ErrDigestConflict. If the disk is full, the log
// is unchanged and a later Put can succeed.
func (s *UpdateSpool) Put(e SpoolEntry, pieces ...[]byte) error {
	if err := checkSpoolEntry(e, pieces); err != nil {
		return err
	}
	sum := uint32(0)
	for _, p := range pieces {
		sum = crc32.Update(sum, castagnoli, p)
	}
	return s.appendEntry(payloadLocation{SpoolEntry: e, checksums: singleChunkChecksum(e.PayloadSize, sum)}, pieces...)
}

func checkEntryNameLengths(e SpoolEntry) error {
	switch {
	case len(e.Agent) == 0 || len(e.Agent) > maxAgentName:
		return fmt.Errorf("store: agent id has %d bytes, but must have between 1 and %d", len(e.Agent), maxAgentName)
	case len(e.SignedManifest) > maxSignedManifest:
		return fmt.Errorf("store: manifest of %s has %d bytes, but at most %d are allowed",
			e.Agent, len(e.SignedManifest),
			maxSignedManifest)
	}
	return nil
}

func checkSpoolEntry(e SpoolEntry, pieces [][]byte) error {
	if err := checkEntryNameLengths(e); err != nil {
		return err
	}
	size := int64(0)
	for _, p := range pieces {
		size += int64(len(p))
	}
	if e.PayloadSize != size {
		return fmt.Errorf("store: update of %s has %d bytes, but its manifest specifies %d", e.Agent, size,
			e.PayloadSize)
	}
	return nil
}

// alreadyStored checks whether the agent already has an entry. If done is true, Put returns err without writing.
func (s *UpdateSpool) alreadyStored(e SpoolEntry) (done bool, err error) {
	s.indexMutex.RLock()
	defer s.indexMutex.RUnlock()
	old, have := s.locationByAgent[e.Agent]
	if have && old.PayloadDigest != e.PayloadDigest {
		return true, fmt.Errorf("store: update %x of %s: %w", e.PayloadDigest, e.Agent, ErrDigestConflict)
	}
	return have, nil
}

// appendEntry appends an entry to the log and adds it to the index. On error the log is unchanged.
func (s *UpdateSpool) appendEntry(at payloadLocation, pieces ...[]byte) error {
	s.writeMutex.Lock()
	defer s.writeMutex.Unlock()
	if done, err := s.alreadyStored(at.SpoolEntry); done {
		return err
	}
	switch {
	case s.isClosed:
		return fmt.Errorf("store: cannot add an update to %s: %w", s.logPath, ErrClosed)
	case s.writeError != nil:
		return s.writeError
	}
	head, end := encodeSpoolEntryHead(s.id, at.SpoolEntry, at.isInOwnFile), s.logEndOffset
	at.offset, at.SignedManifest = end+int64(len(head)), bytes.Clone(at.SignedManifest)
	for _, p := range append([][]byte{head}, pieces...) {
		if _, err := s.logFile.WriteAt(p, end); err != nil {
			return s.rollback(err)
		}
		end += int64(len(p))
	}
	s.logEndOffset = end
	s.indexMutex.Lock()
	defer s.indexMutex.Unlock()
	s.locationByAgent[at.Agent] = at
	return nil
}

// rollback truncates the log to its last entry after a failed write. It returns the error for the caller.
func (s *UpdateSpool) rollback(cause error) error {
	if cut := s.logFile.Truncate(s.logEndOffset); cut != nil {
		s.writeError = fmt.Errorf("store: %s accepts no more updates until the daemon is restarted, "+
			"because a failed write could not be undone: %w", s.logPath, cut)
	}
	return explainFileError("write", s.logPath, cause)
}
