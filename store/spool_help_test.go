package store

import (
	"bytes"
	"io/fs"
	"maps"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

var testID = RoundSpoolID{Run: 3, Round: 9, BaseModelDigest: [32]byte{1, 2, 3}}

func entryOf(agent string, payload []byte) SpoolEntry {
	return SpoolEntry{Agent: agent, PayloadDigest: wire.BlobDigest(payload),
		SignedManifest: []byte("manifest of " + agent),
		PayloadSize:    int64(len(payload))}
}

// hookFS is the machine's file system with wrapped files.
type hookFS struct {
	FS
	wrap func(File) File
}

func hooked(wrap func(File) File) Disk { return Disk{hookFS{LocalDisk.FS, wrap}} }

func (h hookFS) OpenFile(path string, flag int, perm fs.FileMode) (File, error) {
	f, err := h.FS.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return h.wrap(f), nil
}

// hookFile is a file with functions (hooks) that may fail, block or count its operations. A nil hook does nothing.
type hookFile struct {
	File
	read     func() error
	write    func(p []byte) (written int, err error)
	truncate func() error
}

func (f *hookFile) ReadAt(p []byte, off int64) (int, error) {
	if f.read != nil {
		if err := f.read(); err != nil {
			return 0, err
		}
	}
	return f.File.ReadAt(p, off)
}

// WriteAt writes the first bytes of a failing write, like a disk that fills up.
func (f *hookFile) WriteAt(p []byte, off int64) (int, error) {
	if f.write == nil {
		return f.File.WriteAt(p, off)
	}
	n, err := f.write(p)
	if _, err := f.File.WriteAt(p[:min(n, len(p))], off); err != nil {
		return 0, err
	}
	return n, err
}

func (f *hookFile) Truncate(size int64) error {
	if f.truncate != nil {
		return f.truncate()
	}
	return f.File.Truncate(size)
}

// failOn returns a logger function that fails the test when a problem is reported.
func failOn(t testing.TB) func(string) {
	return func(problem string) {
		t.Helper()
		t.Errorf("unexpected problem: %s", problem)
	}
}

func mustOpen(t testing.TB, dir string) *UpdateSpool {
	t.Helper()
	s, err := LocalDisk.OpenSpool(dir, testID, failOn(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mustReopen opens a spool that may be damaged and returns the reported problems.
func mustReopen(t testing.TB, dir string) (s *UpdateSpool, problems []string) {
	t.Helper()
	s, err := LocalDisk.OpenSpool(dir, testID, func(p string) { problems = append(problems, p) })
	if err != nil {
		t.Fatal(err)
	}
	return s, problems
}

func mustOpenHooked(t testing.TB, dir string, f **hookFile) *UpdateSpool {
	t.Helper()
	s, err := hooked(func(inner File) File {
		*f = &hookFile{File: inner}
		return *f
	}).OpenSpool(dir, testID, failOn(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustPut(t testing.TB, s *UpdateSpool, agent string, payload []byte) {
	t.Helper()
	if err := s.Put(entryOf(agent, payload), payload); err != nil {
		t.Fatal(err)
	}
}

func mustClose(t testing.TB, s *UpdateSpool) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// wantServed checks that the spool returns exactly these payloads, and lists complete entries in order.
func wantServed(t testing.TB, s *UpdateSpool, want map[string][]byte) {
	t.Helper()
	var agents []string
	var buf []byte
	for _, e := range s.Entries() {
		agents = append(agents, e.Agent)
		w := entryOf(e.Agent, want[e.Agent])
		if e.PayloadDigest != w.PayloadDigest || e.PayloadSize != w.PayloadSize || !bytes.Equal(e.SignedManifest,
			w.SignedManifest) {
			t.Errorf("entry of %s: %+v, want %+v", e.Agent, e, w)
		}
		var err error
		if buf, err = s.ReadPayload(e.Agent, buf); err != nil || !bytes.Equal(buf, want[e.Agent]) {
			t.Errorf("payload of %s: %q, %v, want %q", e.Agent, buf, err, want[e.Agent])
		}
	}
	if all := slices.Sorted(maps.Keys(want)); !slices.Equal(agents, all) {
		t.Errorf("served %v, want %v", agents, all)
	}
}
