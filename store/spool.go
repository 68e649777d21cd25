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

// SpoolID names a round's spool: an update trained on another base does not belong into it.
type SpoolID struct {
	Run, Round uint64
	Base       [32]byte // digest of the base model
}

// SpoolEntry describes one update.
type SpoolEntry struct {
	Agent          string   // 1 to 255 bytes
	Digest         [32]byte // of the payload: wire.BlobDigest
	SignedManifest []byte   // the signed manifest, up to 64 KiB; not to be modified
	Size           int64    // of the payload, bytes
}

// Spool keeps the updates of one round that have come: one append-only log, files beside it with the large updates, and
// in memory an index that includes every entry's Meta. It is there so that they need no memory. Nothing of it is
// synced: their agents have made them durable, and a power cut takes what must come again. All methods may be called
// concurrently.
type Spool struct {
	disk    Disk
	id      SpoolID
	logPath string
	file    File

	writeMutex sync.Mutex // guards what follows
	closed     bool
	end        int64 // of the last entry
	writeError error // set when a failed write could not be undone

	mu              sync.RWMutex // guards what follows; not held while payloads are read or written
	locationByAgent map[string]payloadLocation
	adoptingAgents  map[string]bool
}

// payloadLocation is where an entry's payload lies: in the log, or in a file apart.
type payloadLocation struct {
	SpoolEntry
	offset    int64
	inOwnFile bool
	sums      chunkChecksums
}

func spoolPath(dir string, id SpoolID) string {
	return filepath.Join(dir, fmt.Sprintf("spool-%016x-%016x-%x.log", id.Run, id.Round, id.Base))
}

// OpenSpool opens the round's spool in dir, or makes a new one; dir is created if only its last element is missing.
// It reads back whatever a crash left and verifies the digest of every payload: entries that are torn or flipped
// are dropped and reported to logger, which must not be nil.
func (d Disk) OpenSpool(dir string, id SpoolID, logger func(problem string)) (*Spool, error) {
	if logger == nil {
		panic("store: OpenSpool needs a logger")
	}
	if err := d.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, explainFileError("create folder", dir, err)
	}
	s := &Spool{
		disk:            d,
		id:              id,
		logPath:         spoolPath(dir, id),
		locationByAgent: make(map[string]payloadLocation),

		adoptingAgents: make(map[string]bool),
	}
	f, err := d.OpenFile(s.logPath, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, explainFileError("open", s.logPath, err)
	}
	s.file = f
	if err := s.recoverLog(logger); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// Entries returns all entries, sorted by agent id.
func (s *Spool) Entries() []SpoolEntry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]SpoolEntry, 0, len(s.locationByAgent))
	for _, at := range s.locationByAgent {
		all = append(all, at.SpoolEntry)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Agent < all[j].Agent })
	return all
}

// Payload reads the agent's update into dst, which it grows if it must, and verifies it (PayloadVerifier): O(update)
// memory, and none that is new when dst is large enough.
func (s *Spool) Payload(agent string, dst []byte) ([]byte, error) {
	s.mu.RLock()
	at, have := s.locationByAgent[agent]
	s.mu.RUnlock()
	if !have {
		return nil, fmt.Errorf("store: %s holds no update of %s", s.logPath, agent)
	}
	dst = slices.Grow(dst[:0], int(at.Size))[:at.Size]
	if err := s.readPayload(dst, at, 0); err != nil {
		return nil, err
	}
	sum := s.verifierOf(at)
	_, _ = sum.Write(dst) // cannot fail
	if err := sum.Check(); err != nil {
		return nil, err
	}
	return dst, nil
}

// NewVerifier returns the sum of the agent's update, to which nothing is written.
func (s *Spool) NewVerifier(agent string) (*PayloadVerifier, error) {
	s.mu.RLock()
	at, have := s.locationByAgent[agent]
	s.mu.RUnlock()
	if !have {
		return nil, fmt.Errorf("store: %s holds no update of %s", s.logPath, agent)
	}
	return s.verifierOf(at), nil
}

func (s *Spool) verifierOf(at payloadLocation) *PayloadVerifier {
	return &PayloadVerifier{want: at.sums,
		changedError: CorruptError{s.logPath, "the update of " + at.Agent + " was changed on disk"}}
}

// PayloadAt fills dst with the agent's update from that byte on. It verifies nothing: see [PayloadVerifier].
func (s *Spool) PayloadAt(agent string, dst []byte, from int64) error {
	s.mu.RLock()
	at, have := s.locationByAgent[agent]
	s.mu.RUnlock()
	if !have || from < 0 || from+int64(len(dst)) > at.Size {
		return fmt.Errorf("store: %s holds no %d bytes from byte %d on of %s", s.logPath, len(dst), from, agent)
	}
	return s.readPayload(dst, at, from)
}

func (s *Spool) readPayload(dst []byte, at payloadLocation, from int64) error {
	if !at.inOwnFile {
		if _, err := s.file.ReadAt(dst, at.offset+from); err != nil {
			return explainFileError("read", s.logPath, err)
		}
		return nil
	}
	f, err := s.openOwnFile(at.SpoolEntry)
	if err != nil {
		return err
	}
	_, err = f.ReadAt(dst, from)
	if err = errors.Join(err, f.Close()); err != nil {
		return explainFileError("read", f.Name(), err)
	}
	return nil
}

// Close closes the log. It removes nothing: once the round is over, its folder is the caller's to remove.
func (s *Spool) Close() error {
	s.writeMutex.Lock()
	defer s.writeMutex.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.file.Close()
}
