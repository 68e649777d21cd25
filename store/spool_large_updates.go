package store

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/wire"
)

// A large update is received in a file of its own beside the log, so that a restart finds what has come and no byte
// is written twice. Adopt makes it an entry of the log, whose payload stays in that file. The name has the digest in
// it: another update never overwrites one that was accepted.

func (s *Spool) ownFilePrefix(agent string) string {
	name := sha256.Sum256([]byte(agent)) // ids that differ in case only must not meet on a file system that ignores it
	return fmt.Sprintf("part-%x-", name[:16])
}

func (s *Spool) ownFilePath(agent string, digest [sha256.Size]byte) string {
	return filepath.Join(filepath.Dir(s.logPath), s.ownFilePrefix(agent)+fmt.Sprintf("%x", digest))
}

// OpenPartial opens the file in which an update is received, with what an earlier process left of it. The arguments are
// those of OpenPartial. An agent has one such file: those of its other unfinished updates are removed. The error is
// ErrConflict if the agent has an entry already, or is being given one.
func (s *Spool) OpenPartial(agent string, digest [sha256.Size]byte, size int64, chunk int,
	sum func(k int) [sha256.Size]byte) (*PartialFile, error) {
	if err := s.removeOtherOwnFiles(agent, digest); err != nil {
		return nil, err
	}
	return s.disk.OpenPartial(s.ownFilePath(agent, digest), size, chunk, sum)
}

func (s *Spool) removeOtherOwnFiles(agent string, digest [sha256.Size]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, have := s.locationByAgent[agent]; have || s.adoptingAgents[agent] {
		return fmt.Errorf("store: update %x of %s: %w", digest, agent, ErrConflict)
	}
	dir, keep := filepath.Dir(s.logPath), s.ownFilePath(agent, digest)
	names, err := s.disk.ReadDir(dir)
	if err != nil {
		return explainFileError("list", dir, err)
	}
	for _, d := range names {
		if path := filepath.Join(dir, d.Name()); strings.HasPrefix(d.Name(), s.ownFilePrefix(agent)) && path != keep {
			if err := s.disk.Remove(path); err != nil {
				return explainFileError("remove", path, err)
			}
		}
	}
	return nil
}

// Adopt is Put for an update that was received in its Partial, which is complete and may be closed. Nothing is read:
// the digest is made of the chunks' hashes, and each chunk was held against its own. Payload verifies the whole.
func (s *Spool) Adopt(e SpoolEntry, p *PartialFile) error {
	if err := checkNames(e); err != nil {
		return err
	}
	if done, err := s.alreadyStored(e); done {
		return err
	}
	if !s.setAdopting(e.Agent, true) {
		return fmt.Errorf("store: update %x of %s: %w", e.Digest, e.Agent, ErrConflict)
	}
	defer s.setAdopting(e.Agent, false)
	path := s.ownFilePath(e.Agent, e.Digest)
	info, err := s.disk.Lstat(path)
	if err != nil || info.Size() != e.Size || p.path != path || p.size != e.Size || slices.Contains(p.haveChunk,
		false) {
		return fmt.Errorf("store: adopt %s: it is not there, or has not all of %d bytes", path, e.Size)
	}
	return s.appendEntry(payloadLocation{SpoolEntry: e, inOwnFile: true, sums: p.sums})
}

// setAdopting marks an agent whose file may not be removed; false says that it was marked already.
func (s *Spool) setAdopting(agent string, on bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on && s.adoptingAgents[agent] {
		return false
	}
	if on {
		s.adoptingAgents[agent] = true
	} else {
		delete(s.adoptingAgents, agent)
	}
	return true
}

func (s *Spool) openOwnFile(e SpoolEntry) (File, error) {
	path := s.ownFilePath(e.Agent, e.Digest)
	f, err := s.disk.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, explainFileError("open", path, err)
	}
	return f, nil
}

// checkOwnFile makes the sum of an entry's file, and reports whether the file is there and right. The error is of the
// disk.
func (s *Spool) checkOwnFile(e SpoolEntry) (sums chunkChecksums, sound bool, err error) {
	f, err := s.openOwnFile(e)
	if errors.Is(err, os.ErrNotExist) {
		return sums, false, nil
	}
	if err != nil {
		return sums, false, err
	}
	sums, sound, err = verifyPayload(e, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return sums, false, explainFileError("read", f.Name(), err)
	}
	return sums, sound, nil
}

// verifyPayload makes the sum of an entry's payload, and reports whether it has the entry's digest.
func verifyPayload(e SpoolEntry, payload io.Reader) (chunkChecksums, bool, error) {
	blob, sum := wire.NewBlobHasher(), crc32.New(castagnoli)
	n, err := io.Copy(io.MultiWriter(blob, sum), payload)
	return singleChunkChecksum(n, sum.Sum32()), err == nil && n == e.Size && blob.Digest() == e.Digest, err
}
