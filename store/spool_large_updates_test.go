package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func (p partialOf) entry(agent string) SpoolEntry { return entryOf(agent, p.payload) }

// receive writes the chunks with the indices ks into the agent's file and closes the file.
func (p partialOf) receive(t testing.TB, s *UpdateSpool, agent string, ks ...int) *PartialFile {
	t.Helper()
	e := p.entry(agent)
	f, err := s.OpenPartialUpdate(agent, e.PayloadDigest, e.PayloadSize, partChunk, p.sum)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range ks {
		if err := f.PutChunk(k, p.chunk(k)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return f
}

func mustAdopt(t testing.TB, s *UpdateSpool, e SpoolEntry, f *PartialFile) {
	t.Helper()
	if err := s.AdoptPartialFile(e, f); err != nil {
		t.Fatal(err)
	}
}

// TestSpoolAdopts checks that large updates, which are stored in separate files, are returned like small updates,
// before and after the spool is reopened.
func TestSpoolAdopts(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	b, d := newPartialOf(1, 3*partChunk+5), newPartialOf(2, partChunk)
	want := map[string][]byte{"a": []byte("small"), "b": b.payload, "c": []byte("small too"), "D": d.payload}
	mustPut(t, s, "a", want["a"])
	b.receive(t, s, "b", 0, 2)
	f := b.receive(t, s, "b", 1, 3) // as if received by two processes
	mustAdopt(t, s, b.entry("b"), f)
	mustAdopt(t, s, b.entry("b"), f)
	mustPut(t, s, "c", want["c"])
	f = d.receive(t, s, "D", 0)
	mustAdopt(t, s, d.entry("D"), f)
	wantServed(t, s, want)
	if err := s.AdoptPartialFile(d.entry("b"), f); !errors.Is(err, ErrDigestConflict) {
		t.Errorf("another update of b: %v", err)
	}
	if _, err := s.OpenPartialUpdate("b", d.entry("b").PayloadDigest, 5, 5, d.sum); !errors.Is(err, ErrDigestConflict) {
		t.Errorf("another file of b: %v", err)
	}
	mustClose(t, s)
	s = mustOpen(t, dir)
	wantServed(t, s, want)
	mustClose(t, s)
	log := mustRead(t, s.logPath)
	if bytes.Contains(log, b.payload[:50]) || len(log) > 4*(spoolEntryHeadSize+40)+20 {
		t.Errorf("a large update is in the log too: %d bytes", len(log))
	}
}

// TestSpoolAdoptVerifies checks that an incomplete file is not added to the spool. An entry whose file is damaged or
// missing must be dropped, and its update can be stored again.
func TestSpoolAdoptVerifies(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	p := newPartialOf(1, 2*partChunk)
	q := newPartialOf(2, partChunk)
	of := q.receive(t, s, "b", 0)
	if err := s.AdoptPartialFile(p.entry("a"), of); err == nil {
		t.Error("without a file of its own: it was adopted")
	}
	if err := s.AdoptPartialFile(p.entry("a"), p.receive(t, s, "a", 0)); err == nil {
		t.Error("with a chunk missing: it was adopted")
	}
	whole, longer := p.receive(t, s, "a", 1), p.entry("a")
	longer.PayloadSize++
	if err := s.AdoptPartialFile(longer, whole); err == nil {
		t.Error("of another size: it was adopted")
	}
	mustAdopt(t, s, p.entry("a"), whole)
	mustAdopt(t, s, q.entry("b"), of)
	mustClose(t, s)
	for name, harm := range map[string]func(path string){
		"flipped": func(path string) { flip(t, path) },
		"cut":     func(path string) { mustWrite(t, path, p.payload[:partChunk]) },
		"gone":    func(path string) { _ = os.Remove(path) },
	} {
		harm(s.largeUpdatePath("a", p.entry("a").PayloadDigest))
		var problems []string
		s, problems = mustReopen(t, dir)
		wantServed(t, s, map[string][]byte{"b": q.payload})
		if len(problems) == 0 {
			t.Errorf("%s: nothing was reported", name)
		}
		mustAdopt(t, s, p.entry("a"), p.receive(t, s, "a", 0, 1))
		wantServed(t, s, map[string][]byte{"a": p.payload, "b": q.payload})
		mustClose(t, s)
	}
}

func flip(t *testing.T, path string) {
	b := mustRead(t, path)
	b[len(b)/2]++
	mustWrite(t, path, b)
}

// TestSpoolHoldsAFileAgainstItsSums checks that reading a large update detects damage that occurred after its file was
// added to the spool.
func TestSpoolHoldsAFileAgainstItsSums(t *testing.T) {
	s, p := mustOpen(t, t.TempDir()), newPartialOf(1, 2*partChunk+5)
	defer mustClose(t, s)
	mustAdopt(t, s, p.entry("a"), p.receive(t, s, "a", 2, 0, 1))
	wantServed(t, s, map[string][]byte{"a": p.payload})
	flip(t, s.largeUpdatePath("a", p.entry("a").PayloadDigest))
	if _, err := s.ReadPayload("a", nil); !errors.As(err, new(*CorruptError)) {
		t.Errorf("a flipped file is read with the error %v", err)
	}
}

// TestSpoolKeepsOneFileOfAnAgent checks that a new update replaces the unfinished file of the same agent, and does not
// remove files of other agents.
func TestSpoolKeepsOneFileOfAnAgent(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	defer mustClose(t, s)
	var a, other *PartialFile
	for seed := range uint64(5) {
		a = newPartialOf(seed, partChunk).receive(t, s, "a", 0)
		other = newPartialOf(7, partChunk).receive(t, s, "A", 0)
	}
	files, err := filepath.Glob(filepath.Join(dir, "part-*"))
	if err != nil || len(files) != 2 {
		t.Errorf("%v %v, want one of each agent", files, err)
	}
	mustAdopt(t, s, newPartialOf(4, partChunk).entry("a"), a)
	mustAdopt(t, s, newPartialOf(7, partChunk).entry("A"), other)
}

// TestSpoolAdoptsConcurrently stores and adopts updates of many agents concurrently.
func TestSpoolAdoptsConcurrently(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	p, want := newPartialOf(1, partChunk), map[string][]byte{}
	var all sync.WaitGroup
	for i := range 20 {
		agent := fmt.Sprint(i)
		want[agent] = p.payload
		if i%2 == 0 {
			f := p.receive(t, s, agent, 0)
			all.Go(func() { mustAdopt(t, s, p.entry(agent), f) })
		} else {
			all.Go(func() { mustPut(t, s, agent, p.payload) })
		}
	}
	all.Wait()
	mustClose(t, s)
	s = mustOpen(t, dir)
	wantServed(t, s, want)
	mustClose(t, s)
}
