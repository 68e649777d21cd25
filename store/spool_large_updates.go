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
// is written twice. AdoptPartialFile makes it an entry of the log, whose payload stays in that file. The name has the
// digest in it: another update never overwrites one that was accepted.

func (s *UpdateSpool) largeUpdatePrefix(agent string) string {
	name := sha256.Sum256([]byte(agent)) // ids that differ in case only must not meet on a file system that ignores it
	return fmt.Sprintf("part-%x-", name[:16])
}

func (s *UpdateSpool) largeUpdatePath(agent string, digest [sha256.Size]byte) string {
	return filepath.Join(filepath.Dir(s.logPath), s.largeUpdatePrefix(agent)+fmt.Sprintf("%x", digest))
}

// OpenPartialUpdate opens the file in which an update is received, with what an earlier process left of it. The
// arguments are those of OpenPartialFile. An agent has one such file: those of its other unfinished updates are
// removed. The error is ErrDigestConflict if the agent has an entry already, or is being given one.
func (s *UpdateSpool) OpenPartialUpdate(agent string, digest [sha256.Size]byte, size int64, chunk int,
	sum func(k int) [sha256.Size]byte) (*PartialFile, error) {
	if err := s.removeOtherLargeUpdates(agent, digest); err != nil {
		return nil, err
	}
	return s.disk.OpenPartialFile(s.largeUpdatePath(agent, digest), size, chunk, sum)
}

func (s *UpdateSpool) removeOtherLargeUpdates(agent string, digest [sha256.Size]byte) error {
	s.indexMutex.Lock()
	defer s.indexMutex.Unlock()
	if _, have := s.locationByAgent[agent]; have || s.isAdoptingByAgent[agent] {
		return fmt.Errorf("store: update %x of %s: %w", digest, agent, ErrDigestConflict)
	}
	dir, keep := filepath.Dir(s.logPath), s.largeUpdatePath(agent, digest)
	names, err := s.disk.ReadDir(dir)
	if err != nil {
		return explainFileError("list", dir, err)
	}
	for _, d := range names {
		if path := filepath.Join(dir, d.Name()); strings.HasPrefix(d.Name(),
			s.largeUpdatePrefix(agent)) && path != keep {
			if err := s.disk.Remove(path); err != nil {
				return explainFileError("remove", path, err)
			}
		}
	}
	return nil
}

// AdoptPartialFile is Put for an update that was received in its PartialFile, which is complete and may be closed.
// Nothing is read: the digest is made of the chunks' hashes, and each chunk was held against its own. ReadPayload
// verifies the whole.
func (s *UpdateSpool) AdoptPartialFile(e SpoolEntry, p *PartialFile) error {
	if err := checkEntryNameLengths(e); err != nil {
		return err
	}
	if done, err := s.alreadyStored(e); done {
		return err
	}
	if !s.setAdoptingPartial(e.Agent, true) {
		return fmt.Errorf("store: update %x of %s: %w", e.PayloadDigest, e.Agent, ErrDigestConflict)
	}
	defer s.setAdoptingPartial(e.Agent, false)
	path := s.largeUpdatePath(e.Agent, e.PayloadDigest)
	info, err := s.disk.Lstat(path)
	if err != nil || info.Size() != e.PayloadSize || p.path != path || p.size != e.PayloadSize ||
		slices.Contains(p.isChunkStored,
			false) {
		return fmt.Errorf("store: adopt %s: it is not there, or has not all of %d bytes", path, e.PayloadSize)
	}
	return s.appendEntry(payloadLocation{SpoolEntry: e, isInOwnFile: true, checksums: p.storedChunkChecksums})
}

// setAdoptingPartial marks an agent whose file may not be removed; false says that it was marked already.
func (s *UpdateSpool) setAdoptingPartial(agent string, on bool) bool {
	s.indexMutex.Lock()
	defer s.indexMutex.Unlock()
	if on && s.isAdoptingByAgent[agent] {
		return false
	}
	if on {
		s.isAdoptingByAgent[agent] = true
	} else {
		delete(s.isAdoptingByAgent, agent)
	}
	return true
}

func (s *UpdateSpool) openLargeUpdate(e SpoolEntry) (File, error) {
	path := s.largeUpdatePath(e.Agent, e.PayloadDigest)
	f, err := s.disk.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, explainFileError("open", path, err)
	}
	return f, nil
}

// checkLargeUpdate makes the sum of an entry's file, and reports whether the file is there and right. The error is of
// the disk.
func (s *UpdateSpool) checkLargeUpdate(e SpoolEntry) (sums chunkChecksums, sound bool, err error) {
	f, err := s.openLargeUpdate(e)
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
	return singleChunkChecksum(n, sum.Sum32()), err == nil && n == e.PayloadSize && blob.Digest() == e.PayloadDigest,
		err
}
