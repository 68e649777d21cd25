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

// A large update is received into its own file next to the log. It is written only once, and a restart can resume it.
// AdoptPartialFile adds it to the log, and the payload remains in that file. The file name contains the digest, so that
// another update never overwrites an accepted one.

func (s *UpdateSpool) largeUpdatePrefix(agent string) string {
	name := sha256.Sum256([]byte(agent)) // hashed, because some file systems ignore case but agent ids do not
	return fmt.Sprintf("part-%x-", name[:16])
}

func (s *UpdateSpool) largeUpdatePath(agent string, digest [sha256.Size]byte) string {
	return filepath.Join(filepath.Dir(s.logPath), s.largeUpdatePrefix(agent)+fmt.Sprintf("%x", digest))
}

// OpenPartialUpdate opens the file into which an update is received, with the chunks from earlier attempts. See
// OpenPartialFile for the arguments. Files of the agent's other unfinished updates are removed. It returns
// ErrDigestConflict if the agent already has an entry or one is being added.
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

// AdoptPartialFile adds a completely received update to the log. p may be closed. The payload is not read again: each
// chunk was verified by its hash, and the digest is computed from these hashes. ReadPayload verifies the whole payload.
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
		return fmt.Errorf("store: cannot adopt %s: the file is missing or does not have all %d bytes",
			path, e.PayloadSize)
	}
	return s.appendEntry(payloadLocation{SpoolEntry: e, isInOwnFile: true, checksums: p.storedChunkChecksums})
}

// setAdoptingPartial marks an agent whose file must not be removed, or removes the mark. It returns false if the agent
// is already marked.
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

// checkLargeUpdate computes the checksum of an entry's file and reports whether the file exists and matches the digest.
// It returns read errors.
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

// verifyPayload computes the checksum of an entry's payload and reports whether the payload matches the digest.
func verifyPayload(e SpoolEntry, payload io.Reader) (chunkChecksums, bool, error) {
	blob, sum := wire.NewBlobHasher(), crc32.New(castagnoli)
	n, err := io.Copy(io.MultiWriter(blob, sum), payload)
	return singleChunkChecksum(n, sum.Sum32()), err == nil && n == e.PayloadSize && blob.Digest() == e.PayloadDigest,
		err
}
