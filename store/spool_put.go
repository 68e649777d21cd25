package store

import (
	"context"
	"fmt"
)

// Put stores an update, whose payload may come in pieces, and returns nil only after all is fsynced; concurrent calls
// share an fsync. The caller has held the payload against its digest. The same update again is nil at once; another
// digest of the same agent is ErrConflict. When the disk is full the error says so, the log is as it was before, and a
// later Put works once there is room. ctx bounds the wait for a place in a group, not the fsync.
func (s *Spool) Put(ctx context.Context, e Entry, pieces ...[]byte) error {
	if err := checkEntry(e, pieces); err != nil {
		return err
	}
	if done, err := s.settled(e); done {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.enqueue(ctx, &putRequest{entry: e, pieces: pieces, done: make(chan error, 1)})
}

func checkNames(e Entry) error {
	switch {
	case len(e.Agent) == 0 || len(e.Agent) > maxAgentName:
		return fmt.Errorf("store: agent id of %d bytes: want 1 to %d", len(e.Agent), maxAgentName)
	case len(e.Meta) > maxMeta:
		return fmt.Errorf("store: manifest of %s has %d bytes: want at most %d", e.Agent, len(e.Meta), maxMeta)
	}
	return nil
}

func checkEntry(e Entry, pieces [][]byte) error {
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

// settled answers a Put that needs no writing: done is false when it does need it.
func (s *Spool) settled(e Entry) (done bool, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	old, have := s.index[e.Agent]
	if have && old.Digest != e.Digest {
		return true, fmt.Errorf("store: update %x of %s: %w", e.Digest, e.Agent, ErrConflict)
	}
	return have, nil
}
