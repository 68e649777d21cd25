package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"
)

// RoundSpoolID identifies the spool of a round. It includes the base model, because updates from a different base model
// must not be mixed in.
type RoundSpoolID struct {
	Run, Round      uint64
	BaseModelDigest [32]byte // digest of the base model
}

// SpoolEntry describes one update.
type SpoolEntry struct {
	Agent          string   // agent id, 1 to 255 bytes
	PayloadDigest  [32]byte // digest of the payload (wire.BlobDigest)
	SignedManifest []byte   // signed manifest, at most 64 KiB; must not be modified
	PayloadSize    int64    // length of the payload in bytes
}

// UpdateSpool stores the received updates of one round on disk, to save memory. It consists of an append-only log,
// files for the large updates, and an index in memory that includes every SignedManifest. Nothing is fsynced: the
// agents keep their updates durably and send them again after a power cut. All methods may be called concurrently.
type UpdateSpool struct {
	disk    Disk
	id      RoundSpoolID
	logPath string
	logFile File

	writeMutex   sync.Mutex // protects logFile, logEndOffset and writeError
	isClosed     bool
	logEndOffset int64 // offset in bytes of the end of the last entry
	writeError   error // set if a failed write could not be undone

	indexMutex        sync.RWMutex // guards the two maps below; not held while payloads are read or written
	locationByAgent   map[string]payloadLocation
	isAdoptingByAgent map[string]bool
}

// payloadLocation is the location of an entry's payload: in the log or in a separate file.
type payloadLocation struct {
	SpoolEntry
	offset      int64
	isInOwnFile bool
	checksums   chunkChecksums
}

func spoolPath(dir string, id RoundSpoolID) string {
	return filepath.Join(dir, fmt.Sprintf("spool-%016x-%016x-%x.log", id.Run, id.Round, id.BaseModelDigest))
}

// OpenSpool opens or creates the spool of a round in dir. It creates dir if the parent exists. It verifies the digest
// of every stored payload. Torn and corrupted entries are dropped and reported to logger, which must not be nil.
func (d Disk) OpenSpool(dir string, id RoundSpoolID, logger func(problem string)) (*UpdateSpool, error) {
	if logger == nil {
		panic("store: OpenSpool needs a logger")
	}
	if err := d.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, explainFileError("create folder", dir, err)
	}
	s := &UpdateSpool{
		disk:            d,
		id:              id,
		logPath:         spoolPath(dir, id),
		locationByAgent: make(map[string]payloadLocation),

		isAdoptingByAgent: make(map[string]bool),
	}
	f, err := d.OpenFile(s.logPath, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, explainFileError("open", s.logPath, err)
	}
	s.logFile = f
	if err := s.recoverLog(logger); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// Entries returns all entries, sorted by agent id.
func (s *UpdateSpool) Entries() []SpoolEntry {
	s.indexMutex.RLock()
	defer s.indexMutex.RUnlock()
	all := make([]SpoolEntry, 0, len(s.locationByAgent))
	for _, at := range s.locationByAgent {
		all = append(all, at.SpoolEntry)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Agent < all[j].Agent })
	return all
}

// ReadPayload reads the agent's update into dst and verifies it. It grows dst if necessary. A large enough dst requires
// no allocation.
func (s *UpdateSpool) ReadPayload(agent string, dst []byte) ([]byte, error) {
	s.indexMutex.RLock()
	at, have := s.locationByAgent[agent]
	s.indexMutex.RUnlock()
	if !have {
		return nil, fmt.Errorf("store: %s contains no update of %s", s.logPath, agent)
	}
	dst = slices.Grow(dst[:0], int(at.PayloadSize))[:at.PayloadSize]
	if err := s.readPayload(dst, at, 0); err != nil {
		return nil, err
	}
	sum := s.payloadVerifierAt(at)
	_, _ = sum.Write(dst) // never fails
	if err := sum.CheckPayload(); err != nil {
		return nil, err
	}
	return dst, nil
}

// NewPayloadVerifier returns a verifier for the agent's update. No bytes have been written to it yet.
func (s *UpdateSpool) NewPayloadVerifier(agent string) (*PayloadVerifier, error) {
	s.indexMutex.RLock()
	at, have := s.locationByAgent[agent]
	s.indexMutex.RUnlock()
	if !have {
		return nil, fmt.Errorf("store: %s contains no update of %s", s.logPath, agent)
	}
	return s.payloadVerifierAt(at), nil
}

func (s *UpdateSpool) payloadVerifierAt(at payloadLocation) *PayloadVerifier {
	return &PayloadVerifier{expectedChecksums: at.checksums,
		changedError: CorruptError{s.logPath, "the update of " + at.Agent + " was changed on disk"}}
}

// ReadPayloadAt fills dst with bytes of an agent's update, starting at offset from. It does not verify the bytes, see
// [PayloadVerifier].
func (s *UpdateSpool) ReadPayloadAt(agent string, dst []byte, from int64) error {
	s.indexMutex.RLock()
	at, have := s.locationByAgent[agent]
	s.indexMutex.RUnlock()
	if !have || from < 0 || from+int64(len(dst)) > at.PayloadSize {
		return fmt.Errorf("store: %s does not contain %d bytes at offset %d of the update of %s", s.logPath, len(dst),
			from, agent)
	}
	return s.readPayload(dst, at, from)
}

func (s *UpdateSpool) readPayload(dst []byte, at payloadLocation, from int64) error {
	if !at.isInOwnFile {
		if _, err := s.logFile.ReadAt(dst, at.offset+from); err != nil {
			return explainFileError("read", s.logPath, err)
		}
		return nil
	}
	f, err := s.openLargeUpdate(at.SpoolEntry)
	if err != nil {
		return err
	}
	_, err = f.ReadAt(dst, from)
	if err = errors.Join(err, f.Close()); err != nil {
		return explainFileError("read", f.Name(), err)
	}
	return nil
}

// Close closes the log. It removes no files; the caller removes the folder after the round.
func (s *UpdateSpool) Close() error {
	s.writeMutex.Lock()
	defer s.writeMutex.Unlock()
	if s.isClosed {
		return nil
	}
	s.isClosed = true
	return s.logFile.Close()
}
