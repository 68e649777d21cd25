package store

import (
	"bytes"
	"fmt"
	"hash/crc32"
)

// Put stores an update, whose payload may come in pieces, and which the caller has held against its digest. It syncs
// nothing. The same update again is nil at once; another digest of the same agent is ErrConflict. When the disk is full
// the error says so, the log is as it was before, and a later Put works once there is room.
func (s *Spool) Put(e SpoolEntry, pieces ...[]byte) error {
	if err := checkEntry(e, pieces); err != nil {
		return err
	}
	sum := uint32(0)
	for _, p := range pieces {
		sum = crc32.Update(sum, castagnoli, p)
	}
	return s.appendEntry(payloadLocation{SpoolEntry: e, sums: singleChunkChecksum(e.Size, sum)}, pieces...)
}

func checkNames(e SpoolEntry) error {
	switch {
	case len(e.Agent) == 0 || len(e.Agent) > maxAgentName:
		return fmt.Errorf("store: agent id of %d bytes: want 1 to %d", len(e.Agent), maxAgentName)
	case len(e.SignedManifest) > maxMeta:
		return fmt.Errorf("store: manifest of %s has %d bytes: want at most %d", e.Agent, len(e.SignedManifest),
			maxMeta)
	}
	return nil
}

func checkEntry(e SpoolEntry, pieces [][]byte) error {
	if err := checkNames(e); err != nil {
		return err
	}
	size := int64(0)
	for _, p := range pieces {
		size += int64(len(p))
	}
	if e.Size != size {
		return fmt.Errorf("store: update of %s has %d bytes: its manifest says %d", e.Agent, size, e.Size)
	}
	return nil
}

// alreadyStored answers a Put that needs no writing: done is false when it does need it.
func (s *Spool) alreadyStored(e SpoolEntry) (done bool, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	old, have := s.locationByAgent[e.Agent]
	if have && old.Digest != e.Digest {
		return true, fmt.Errorf("store: update %x of %s: %w", e.Digest, e.Agent, ErrConflict)
	}
	return have, nil
}

// appendEntry writes an entry behind the last one and indexes it, or leaves the log as it was.
func (s *Spool) appendEntry(at payloadLocation, pieces ...[]byte) error {
	s.writeMutex.Lock()
	defer s.writeMutex.Unlock()
	if done, err := s.alreadyStored(at.SpoolEntry); done {
		return err
	}
	switch {
	case s.closed:
		return fmt.Errorf("store: put into %s: %w", s.logPath, ErrClosed)
	case s.writeError != nil:
		return s.writeError
	}
	head, end := encodeEntry(s.id, at.SpoolEntry, at.inOwnFile), s.end
	at.offset, at.SignedManifest = end+int64(len(head)), bytes.Clone(at.SignedManifest)
	for _, p := range append([][]byte{head}, pieces...) {
		if _, err := s.file.WriteAt(p, end); err != nil {
			return s.rollback(err)
		}
		end += int64(len(p))
	}
	s.end = end
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locationByAgent[at.Agent] = at
	return nil
}

// rollback cuts the log back to its last entry after a failed write, and returns the error for the caller.
func (s *Spool) rollback(cause error) error {
	if cut := s.file.Truncate(s.end); cut != nil {
		s.writeError = fmt.Errorf("store: %s takes no more updates until the daemon is restarted: "+
			"a failed write could not be undone: %w", s.logPath, cut)
	}
	return explainFileError("write", s.logPath, cause)
}
