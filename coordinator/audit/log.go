// Package audit keeps the log of who changed a federation, and whom its coordinator kept out: lines of JSON of which
// each has the hash of the one before, so that none can be changed, taken away or put between without all later ones
// being made anew. The coordinator signs the newest hash in each round's line of the history: whoever has not got its
// key cannot make them anew unseen.
package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// EventKind is the kind of an entry.
type EventKind string

// The events.
const (
	Started   EventKind = "started"   // a process; key is the coordinator's public key
	Epoch     EventKind = "epoch"     // was raised, to about
	Command   EventKind = "command"   // about is the request, before it is carried out
	Refused   EventKind = "refused"   // the command of the entry before, or an update, with the reason
	Joined    EventKind = "joined"    // a device, with a token
	Renewed   EventKind = "renewed"   // a device's key or certificate, or both
	Opened    EventKind = "opened"    // any device may join, until about; closed again without about
	Reloaded  EventKind = "reloaded"  // the list of agents, by a signal
	LeftOut   EventKind = "left out"  // an agent's update was left out of a model
	Sidelined EventKind = "sidelined" // an agent sits out
	Released  EventKind = "released"  // an agent may be drawn again
	Clone     EventKind = "clone"     // two devices use one identity
	Lost      EventKind = "lost"      // entries before this one
	Foreign   EventKind = "foreign"   // an announcement was signed with the coordinator's key elsewhere
)

// Entry is a line of the log. N counts from 1 on. Previous is the SHA-256 of the line before, without its newline; that
// of line 1 is empty.
type Entry struct {
	Number       uint64       `json:"n"`
	Time         time.Time    `json:"time"`
	Event        EventKind    `json:"event"`
	Actor        string       `json:"who,omitempty"` // the user, or the token's name
	Agent        wire.AgentID `json:"agent,omitempty"`
	Subject      string       `json:"about,omitempty"`
	PublicKey    []byte       `json:"key,omitempty"`
	PreviousHash []byte       `json:"previous,omitempty"`
}

// ChainHead says that the log had n entries, of which the last one's line has this hash, when a round ended.
type ChainHead struct {
	EntryCount uint64 `json:"n"`
	Hash       []byte `json:"hash"`
	Signature  []byte `json:"signature"`
}

const (
	// Folder is the log's in the state folder: files of at most maxFile bytes, each named by the number of its first
	// entry.
	Folder  = "audit"
	maxFile = 16 << 20
	// maxWaiting bounds the entries that wait for the disk.
	maxWaiting = 4096
)

// Log is open for one process.
type Log struct {
	disk          store.Disk
	dir           string
	federation    wire.FederationName
	key           ed25519.PrivateKey
	now           func() time.Time
	reportFailure func(error)

	mu              sync.Mutex // of what is being written
	newestFile      *store.RoundHistory
	lastEntryNumber uint64
	lastEntryHash   []byte

	queueMutex    sync.Mutex
	queuedEntries []Entry
	lostEntries   int // that found no place among them
	closed        bool

	headMutex sync.Mutex
	head      ChainHead // what is on the disk, without a signature

	wake, stop, done chan struct{}
}

// Open opens the log of a state folder, or begins it, and says who has. Entries that nobody waits for are written by a
// goroutine of its own; failed is told when they cannot be, and then kept for the next try.
func Open(disk store.Disk, state string, federation wire.FederationName, key ed25519.PrivateKey, now func() time.Time,
	failed func(error)) (*Log, error) {
	l := &Log{disk: disk, dir: filepath.Join(state, Folder), federation: federation, key: key, now: now,
		reportFailure: failed,
		wake:          make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	if err := disk.MakeDir(l.dir); err != nil {
		return nil, fmt.Errorf("the audit log: %w", err)
	}
	if err := l.resumeNewestFile(); err != nil {
		return nil, err
	}
	if err := l.RecordEntry(Entry{Event: Started, PublicKey: key.Public().(ed25519.PublicKey)}); err != nil {
		return nil, errors.Join(err, l.newestFile.Close())
	}
	go l.writeQueuedEntries()
	return l, nil
}

// resumeNewestFile opens the newest file, and takes up the count and the hash of the newest line.
func (l *Log) resumeNewestFile() error {
	names, err := FileNames(l.disk, filepath.Dir(l.dir))
	if err != nil {
		return err
	}
	if len(names) == 0 {
		names = []string{nameOfFileFrom(1)}
	}
	newest := filepath.Join(l.dir, names[len(names)-1])
	if l.newestFile, err = l.disk.OpenRoundHistory(newest); err != nil {
		return err
	}
	for _, name := range slices.Backward(names) { // a file may have been begun without a line
		path := filepath.Join(l.dir, name)
		for line, err := range l.disk.NewestHistoryLines(path) {
			var e Entry
			if err == nil {
				err = json.Unmarshal(line, &e)
			}
			if err != nil {
				err = fmt.Errorf("the audit log's last line in %s cannot be read: %w; to begin a new log, move the "+
					"folder away", path, err)
				return errors.Join(err, l.newestFile.Close())
			}
			l.lastEntryNumber, l.lastEntryHash = e.Number, hashOfLine(line)
			l.head = ChainHead{EntryCount: l.lastEntryNumber, Hash: l.lastEntryHash}
			return nil
		}
	}
	return nil
}

func hashOfLine(line []byte) []byte {
	sum := sha256.Sum256(line)
	return sum[:]
}

func nameOfFileFrom(first uint64) string { return fmt.Sprintf("%020d.jsonl", first) }

// FileNames returns the names of the log's files in a state folder, the oldest first.
func FileNames(disk store.Disk, state string) (names []string, err error) {
	entries, err := disk.ReadDir(filepath.Join(state, Folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries { // sorted by name
		if n, of := strings.CutSuffix(e.Name(), ".jsonl"); of && len(n) == 20 && strings.Trim(n, "0123456789") == "" {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// RecordEntry adds an entry, and returns when it is on the disk. N, time and hash are its own affair.
func (l *Log) RecordEntry(e Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.appendEntry(e)
}

func (l *Log) appendEntry(e Entry) error {
	e.Number, e.PreviousHash = l.lastEntryNumber+1, l.lastEntryHash
	if e.Time.IsZero() {
		e.Time = l.now()
	}
	e.Time = e.Time.UTC()
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if l.newestFile.Size()+int64(len(line)) > maxFile {
		if err := l.startNextFile(); err != nil {
			return err
		}
	}
	if err := l.newestFile.Append(json.RawMessage(line)); err != nil {
		return err
	}
	l.lastEntryNumber, l.lastEntryHash = e.Number, hashOfLine(line)
	l.headMutex.Lock()
	l.head = ChainHead{EntryCount: l.lastEntryNumber, Hash: l.lastEntryHash}
	l.headMutex.Unlock()
	return nil
}

// startNextFile begins the next file.
func (l *Log) startNextFile() error {
	next, err := l.disk.OpenRoundHistory(filepath.Join(l.dir, nameOfFileFrom(l.lastEntryNumber+1)))
	if err != nil {
		return err
	}
	_ = l.newestFile.Close() // all of it is synced
	l.newestFile = next
	return l.disk.SyncDir(l.dir)
}

// RecordEntryLater adds an entry soon. It does not wait: not for the disk, and not for another entry. After Close it
// does nothing.
func (l *Log) RecordEntryLater(e Entry) {
	e.Time = l.now()
	l.queueMutex.Lock()
	switch {
	case l.closed:
	case len(l.queuedEntries) < maxWaiting:
		l.queuedEntries = append(l.queuedEntries, e)
	default:
		l.lostEntries++
	}
	l.queueMutex.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// writeQueuedEntries writes what waits, until the log is closed.
func (l *Log) writeQueuedEntries() {
	defer close(l.done)
	for {
		select {
		case <-l.wake:
			l.flushQueuedEntries()
		case <-l.stop:
			l.flushQueuedEntries()
			return
		}
	}
}

func (l *Log) flushQueuedEntries() {
	l.queueMutex.Lock()
	waiting, lost := l.queuedEntries, l.lostEntries
	l.queuedEntries, l.lostEntries = nil, 0
	l.queueMutex.Unlock()
	if lost > 0 {
		waiting = append(waiting, Entry{Event: Lost, Subject: fmt.Sprintf("%d entries: the disk did not keep up",
			lost)})
	}
	for i, e := range waiting {
		if err := l.RecordEntry(e); err != nil {
			l.reportFailure(err)
			l.queueMutex.Lock()
			l.queuedEntries = append(waiting[i:len(waiting):len(waiting)], l.queuedEntries...)
			l.queueMutex.Unlock()
			return
		}
	}
}

// Close writes what waits, and closes the file. A request that is still being answered may come later: its entry is
// refused, or lost.
func (l *Log) Close() error {
	l.queueMutex.Lock()
	l.closed = true
	l.queueMutex.Unlock()
	close(l.stop)
	<-l.done
	return l.newestFile.Close()
}

// SignHead returns what is on the disk now, signed for a round that has ended.
func (l *Log) SignHead(run wire.RunID, round wire.RoundID) *ChainHead {
	l.headMutex.Lock()
	h := l.head
	l.headMutex.Unlock()
	h.Signature = ed25519.Sign(l.key, h.bytesToSign(l.federation, run, round))
	return &h
}

// bytesToSign are the bytes that a head's signature is for.
func (h *ChainHead) bytesToSign(federation wire.FederationName, run wire.RunID, round wire.RoundID) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "fedmesh audit\x00%s\x00%d\x00%d\x00%d\x00", federation, run, round, h.EntryCount)
	b.Write(h.Hash)
	return b.Bytes()
}
