package store

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
)

// maxGroup bounds how many updates share one fsync, so that the first of them does not wait without bound.
const maxGroup = 256

// putRequest is one Put that waits for its group.
type putRequest struct {
	entry  Entry
	pieces [][]byte   // of the payload
	apart  bool       // the payload is in its file, fsynced
	done   chan error // buffered: who commits the group never waits for a caller
}

// enqueue waits until the request is committed, as part of a group. Callers queue up while the disk is busy with a
// group; the first one whose turn it is then commits all that wait: the slower the disk, the larger the groups.
func (s *Spool) enqueue(ctx context.Context, r *putRequest) error {
	if err := s.join(r); err != nil {
		return err
	}
	select {
	case s.turn <- struct{}{}:
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return s.giveUp(r, ctx.Err())
	case <-s.quit:
		return s.giveUp(r, s.closed())
	}
	defer func() { <-s.turn }()
	for {
		select {
		case err := <-r.done:
			return err
		default:
			s.commitGroup(s.gather())
		}
	}
}

func (s *Spool) closed() error { return fmt.Errorf("store: put into %s: %w", s.logPath, ErrClosed) }

// join puts the request into the queue.
func (s *Spool) join(r *putRequest) error {
	s.queueing.Lock()
	defer s.queueing.Unlock()
	select {
	case <-s.quit:
		return s.closed()
	default:
		s.queue = append(s.queue, r)
		return nil
	}
}

// giveUp removes the request from the queue. If it is already in a group, it gets that group's answer.
func (s *Spool) giveUp(r *putRequest, why error) error {
	s.queueing.Lock()
	i := slices.Index(s.queue, r)
	if i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	s.queueing.Unlock()
	if i >= 0 {
		return why
	}
	return <-r.done
}

// gather returns the requests that wait.
func (s *Spool) gather() []*putRequest {
	s.queueing.Lock()
	defer s.queueing.Unlock()
	n := min(len(s.queue), maxGroup)
	group := slices.Clone(s.queue[:n])
	s.queue = slices.Delete(s.queue, 0, n)
	return group
}

// commitGroup writes what is new in the group, fsyncs once and answers everyone. A second update of an agent in the
// same group is not written: once the first is decided it is answered like any later Put.
func (s *Spool) commitGroup(group []*putRequest) {
	fresh := make([]*putRequest, 0, len(group))
	seen := make(map[string]bool, len(group))
	for _, r := range group {
		if done, _ := s.settled(r.entry); !done && !seen[r.entry.Agent] {
			seen[r.entry.Agent] = true
			fresh = append(fresh, r)
		}
	}
	var failed error
	if len(fresh) > 0 {
		failed = s.appendAll(fresh)
	}
	for _, r := range group {
		done, err := s.settled(r.entry)
		if !done {
			err = failed
		}
		r.done <- err
	}
}

// appendAll writes and fsyncs the entries and indexes them, or leaves the log as it was.
func (s *Spool) appendAll(fresh []*putRequest) error {
	if s.broken != nil {
		return s.broken
	}
	if slices.ContainsFunc(fresh, func(r *putRequest) bool { return r.apart }) {
		if err := s.disk.SyncDir(filepath.Dir(s.logPath)); err != nil { // the files' names
			return explain("fsync", filepath.Dir(s.logPath), err)
		}
	}
	end := s.end
	slots := make([]slot, len(fresh))
	for i, r := range fresh {
		head := encodeEntry(s.id, r.entry, r.apart)
		slots[i] = slot{Entry: r.entry, offset: end + int64(len(head)), apart: r.apart}
		slots[i].Meta = bytes.Clone(r.entry.Meta)
		for _, p := range append([][]byte{head}, r.pieces...) {
			if _, err := s.file.WriteAt(p, end); err != nil {
				return s.rollback("write", err)
			}
			end += int64(len(p))
		}
	}
	if err := s.file.Sync(); err != nil {
		return s.rollback("fsync", err)
	}
	s.end = end
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range slots {
		s.index[at.Agent] = at
	}
	return nil
}

// rollback cuts the log back to the last durable entry after a failed write or fsync and returns the error for the
// callers. Lack of space passes. Any other failed fsync does not: the kernel may have thrown away what it could not
// write and would report success the next time, so the spool takes nothing more until it is opened again.
func (s *Spool) rollback(action string, cause error) error {
	err := explain(action, s.logPath, cause)
	if cut := s.file.Truncate(s.end); cut != nil {
		s.broken = fmt.Errorf("store: %s takes no more updates until the daemon is restarted: "+
			"a failed write could not be undone: %w", s.logPath, cut)
	} else if action == "fsync" && !isNoSpace(cause) {
		s.broken = fmt.Errorf("store: %s takes no more updates until the daemon is restarted: "+
			"check the disk: %w", s.logPath, cause)
	}
	return err
}
