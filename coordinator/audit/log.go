// Package audit records who changed a federation and which devices the coordinator excluded. The log consists of JSON
// lines that form a hash chain: each entry contains the hash of the previous line. Changing, removing or inserting an
// entry invalidates all later ones.
//
// The coordinator signs the newest hash in each round's line of the history. Without its key, the log cannot be
// rewritten undetected.
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

// EventKind is the kind of event that an audit log entry records.
type EventKind string

// Kinds of events in the audit log.
const (
	Started EventKind = "started" // a process started; PublicKey is the coordinator's key
	Epoch   EventKind = "epoch"   // the epoch was raised to the number in Subject
	Command EventKind = "command" // operator request in Subject; the entry is written before the request is executed
	Refused EventKind = "refused" // the preceding command or an update was rejected; Subject is the reason
	Joined  EventKind = "joined"  // a device enrolled with a token
	Renewed EventKind = "renewed" // a device renewed its key, its certificate or both
	// Any device may enrol until the time in Subject. Enrolment is closed if Subject is empty.
	Opened    EventKind = "opened"
	Reloaded  EventKind = "reloaded"  // the list of agents was reloaded after a signal
	LeftOut   EventKind = "left out"  // an agent's update was left out of a model
	Sidelined EventKind = "sidelined" // an agent was suspended from rounds
	Released  EventKind = "released"  // an agent's suspension ended
	Clone     EventKind = "clone"     // two devices use one identity
	Lost      EventKind = "lost"      // earlier entries were lost because they could not be written
	Foreign   EventKind = "foreign"   // another process used the coordinator's key
)

// Entry is a line of the log. Number starts at 1. PreviousHash is the SHA-256 of the previous line without its newline,
// and is empty in entry 1.
type Entry struct {
	Number       uint64       `json:"n"`
	Time         time.Time    `json:"time"`
	Event        EventKind    `json:"event"`
	Actor        string       `json:"who,omitempty"` // name of the user or the token
	Agent        wire.AgentID `json:"agent,omitempty"`
	Subject      string       `json:"about,omitempty"`
	PublicKey    []byte       `json:"key,omitempty"`
	PreviousHash []byte       `json:"previous,omitempty"`
}

// ChainHead identifies the newest entry at the end of a round: its number and the hash of its line.
type ChainHead struct {
	EntryCount uint64 `json:"n"`
	Hash       []byte `json:"hash"`
	Signature  []byte `json:"signature"`
}

const (
	// Folder is the name of the log's folder in the state folder. Each file has at most maxFile bytes and is named
	// after the number of its first entry.
	Folder  = "audit"
	maxFile = 16 << 20
	// maxWaiting is the maximum number of entries queued for writing.
	maxWaiting = 4096
)

// Log is an audit log that is open for writing.
type Log struct {
	disk          store.Disk
	dir           string
	federation    wire.FederationName
	key           ed25519.PrivateKey
	now           func() time.Time
	reportFailure func(error)

	mu              sync.Mutex // guards newestFile, lastEntryNumber and lastEntryHash
	newestFile      *store.RoundHistory
	lastEntryNumber uint64
	lastEntryHash   []byte

	queueMutex    sync.Mutex
	queuedEntries []Entry
	lostEntries   int // number of entries dropped because the queue was full
	closed        bool

	headMutex sync.Mutex
	head      ChainHead // number and hash of the newest entry on disk; not signed

	wake, stop, done chan struct{}
}

// Open opens or creates the log of a state folder and records the start of the process. A goroutine writes the entries
// of RecordEntryLater. If writing fails, it calls failed and retries with the next entry.
func Open(disk store.Disk, state string, federation wire.FederationName, key ed25519.PrivateKey, now func() time.Time,
	failed func(error)) (*Log, error) {
	l := &Log{disk: disk, dir: filepath.Join(state, Folder), federation: federation, key: key, now: now,
		reportFailure: failed,
		wake:          make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	if err := disk.MakeDir(l.dir); err != nil {
		return nil, fmt.Errorf("cannot create the audit log: %w", err)
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

// resumeNewestFile opens the newest file and restores the number and the hash of the last entry.
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
	for _, name := range slices.Backward(names) { // Read earlier files too, because the newest may be empty.
		path := filepath.Join(l.dir, name)
		for line, err := range l.disk.NewestHistoryLines(path) {
			var e Entry
			if err == nil {
				err = json.Unmarshal(line, &e)
			}
			if err != nil {
				err = fmt.Errorf(
					"cannot read the last line of the audit log %s: %w; to start a new log, move the folder away",
					path, err)
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

// FileNames returns the names of the log files in a state folder, oldest first.
func FileNames(disk store.Disk, state string) (names []string, err error) {
	entries, err := disk.ReadDir(filepath.Join(state, Folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries { // ReadDir sorts the entries by name
		if n, of := strings.CutSuffix(e.Name(), ".jsonl"); of && len(n) == 20 && strings.Trim(n, "0123456789") == "" {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// RecordEntry appends an entry and returns when it is on disk. It sets Number, PreviousHash and, if zero, Time.
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

// startNextFile creates the next file and closes the current one.
func (l *Log) startNextFile() error {
	next, err := l.disk.OpenRoundHistory(filepath.Join(l.dir, nameOfFileFrom(l.lastEntryNumber+1)))
	if err != nil {
		return err
	}
	_ = l.newestFile.Close() // Ignore the error, because every write was synced.
	l.newestFile = next
	return l.disk.SyncDir(l.dir)
}

// RecordEntryLater queues an entry for writing. It never blocks on the disk. After Close it does nothing.
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

// writeQueuedEntries writes queued entries until the log is closed.
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
		waiting = append(waiting, Entry{Event: Lost, Subject: fmt.Sprintf("%d entries were not written because the "+
			"disk was too slow",
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

// Close writes the queued entries and closes the file. Entries of requests that are still in progress may fail or be
// lost.
func (l *Log) Close() error {
	l.queueMutex.Lock()
	l.closed = true
	l.queueMutex.Unlock()
	close(l.stop)
	<-l.done
	return l.newestFile.Close()
}

// SignHead returns the newest entry on disk, signed for a finished round.
func (l *Log) SignHead(run wire.RunID, round wire.RoundID) *ChainHead {
	l.headMutex.Lock()
	h := l.head
	l.headMutex.Unlock()
	h.Signature = ed25519.Sign(l.key, h.bytesToSign(l.federation, run, round))
	return &h
}

// bytesToSign returns the bytes that the signature of the head covers.
func (h *ChainHead) bytesToSign(federation wire.FederationName, run wire.RunID, round wire.RoundID) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "fedmesh audit\x00%s\x00%d\x00%d\x00%d\x00", federation, run, round, h.EntryCount)
	b.Write(h.Hash)
	return b.Bytes()
}
