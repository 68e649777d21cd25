package audit

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

const federation = wire.FederationName("air")

func keyOf(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func public(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

// site is a state folder with an audit log, and the signed heads (number and hash of the newest entry) in the run's
// history.
type site struct {
	t     *testing.T
	dir   string
	key   ed25519.PrivateKey
	disk  store.Disk
	log   *Log
	heads []*SignedHead
}

func newSite(t *testing.T) *site {
	return &site{t: t, dir: t.TempDir(), key: keyOf(1), disk: store.LocalDisk}
}

func (s *site) open() {
	s.t.Helper()
	var err error
	now := func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC) }
	if s.log, err = Open(s.disk, s.dir, federation, s.key, now, func(error) {}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) close() {
	s.t.Helper()
	if err := s.log.Close(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) record(about string) {
	s.t.Helper()
	if err := s.log.RecordEntry(Entry{Event: Command, Actor: "uid 0", Subject: about}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) round(n wire.RoundID) {
	s.heads = append(s.heads, &SignedHead{Run: 1, Round: n, Head: *s.log.SignHead(1, n)})
}

func (s *site) verify() (VerificationReport, error) {
	return Verify(s.dir, federation, public(s.key), func(yield func(*SignedHead, error) bool) {
		for _, h := range s.heads {
			if !yield(h, nil) {
				return
			}
		}
	})
}

// filled returns a log with six entries: two starts and four commands. The heads of rounds 1 and 2 refer to entries 3
// and 5.
func filled(t *testing.T) *site {
	s := newSite(t)
	s.open()
	s.record("one")
	s.record("two")
	s.round(1)
	s.close()
	s.open()
	s.record("three")
	s.round(2)
	s.record("four")
	s.close()
	return s
}

func TestVerify(t *testing.T) {
	s := filled(t)
	r, err := s.verify()
	if want := (VerificationReport{FirstEntry: 1, LastEntry: 6, VerifiedHeads: 2, LastVerifiedEntry: 5}); err != nil ||
		r != want {
		t.Errorf("%+v, %v; want %+v", r, err, want)
	}
}

// TestTampered checks that Verify detects modifications of the folder by an attacker with write access but without the
// key.
func TestTampered(t *testing.T) {
	edit := func(s *site, change func(lines []string) []string) {
		path := filepath.Join(s.dir, Folder, nameOfFileFrom(1))
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := change(strings.SplitAfter(string(text), "\n"))
		if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// rebuilt writes a new log with valid hashes.
	rebuilt := func(s *site, key ed25519.PrivateKey, about ...string) {
		s.heads[1] = nil
		s.key = key
		if err := os.RemoveAll(filepath.Join(s.dir, Folder)); err != nil {
			t.Fatal(err)
		}
		s.open()
		for _, a := range about {
			s.record(a)
		}
		s.close()
	}
	for name, tt := range map[string]struct {
		do   func(s *site)
		says string
	}{
		"a word": {func(s *site) {
			edit(s, func(l []string) []string { l[1] = strings.Replace(l[1], "one", "0ne", 1); return l })
		}, "entry 2 was changed after entry 3"},
		"an entry is taken away": {func(s *site) {
			edit(s, func(l []string) []string { return slices.Delete(l, 2, 3) })
		}, "entry 4 follows entry 2"},
		"an entry is put between": {func(s *site) {
			edit(s, func(l []string) []string { return slices.Insert(l, 2, l[1]) })
		}, "entry 2 follows entry 2"},
		"the last signed ones are taken away": {func(s *site) {
			edit(s, func(l []string) []string { return l[:4] })
		}, "the log ends with entry 4, but it already contained entry 5"},
		"the last line is changed, which was signed": {func(s *site) {
			edit(s, func(l []string) []string { l[4] = strings.Replace(l[4], "three", "3", 1); return l[:5] })
		}, "entry 5 differs from the entry that the coordinator signed in round 2"},
		"no JSON": {func(s *site) {
			edit(s, func(l []string) []string { l[3] = "{}}\n"; return l })
		}, ":4: invalid character"},
		"all is made anew": {func(s *site) { rebuilt(s, s.key, "another", "and another", "and one") },
			"entry 3 differs from the entry that the coordinator signed in round 1"},
		"the file is gone": {func(s *site) {
			if err := os.RemoveAll(filepath.Join(s.dir, Folder)); err != nil {
				t.Fatal(err)
			}
		}, "the log ends with entry 0"},
		"a head of another key": {func(s *site) {
			s.heads[0].Head.Signature = ed25519.Sign(keyOf(2), s.heads[0].Head.bytesToSign(federation, 1, 1))
		}, "the signature of the audit log in round 1"},
		"a head of another round": {func(s *site) { s.heads[0].Round = 7 },
			"the signature of the audit log in round 7"},
		"entries behind the last head, with a key of their writer": {func(s *site) {
			own := s.key
			s.key = keyOf(2)
			s.open()
			s.round(3)
			s.close()
			s.key = own
		}, "the signature of the audit log in round 3"},
	} {
		t.Run(name, func(t *testing.T) {
			s := filled(t)
			tt.do(s)
			if _, err := s.verify(); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v; want %q", err, tt.says)
			}
		})
	}
}

// TestAnotherKey checks that the log remains valid after the coordinator's key is replaced.
func TestAnotherKey(t *testing.T) {
	s := filled(t)
	s.key = keyOf(2)
	s.open()
	s.round(3)
	s.close()
	s.heads = append(s.heads, nil) // a round without a signed head
	r, err := s.verify()
	if want := (VerificationReport{FirstEntry: 1, LastEntry: 7, VerifiedHeads: 3, LastVerifiedEntry: 7,
		UnsignedRounds: 1}); err != nil || r != want {
		t.Errorf("%+v, %v; want %+v", r, err, want)
	}
}

// TestFiles checks that the log continues in a new file, and can be verified without the oldest files.
func TestFiles(t *testing.T) {
	s := newSite(t)
	s.open()
	s.record(strings.Repeat("x", 900<<10))
	for range 18 {
		s.record(strings.Repeat("x", 900<<10))
	}
	s.round(1)
	s.close()
	names, err := FileNames(s.disk, s.dir)
	if err != nil || len(names) != 2 {
		t.Fatalf("%v, %v", names, err)
	}
	if r, err := s.verify(); err != nil || r.FirstEntry != 1 || r.LastEntry != 20 || r.LastVerifiedEntry != 20 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := os.Remove(filepath.Join(s.dir, Folder, names[0])); err != nil {
		t.Fatal(err)
	}
	if r, err := s.verify(); err != nil || r.FirstEntry == 1 || r.LastEntry != 20 || r.LastVerifiedEntry != 20 {
		t.Errorf("%+v, %v", r, err)
	}
	// Create an empty file, as a power cut may leave behind.
	if err := os.WriteFile(filepath.Join(s.dir, Folder, nameOfFileFrom(21)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.open()
	s.close()
	if r, err := s.verify(); err != nil || r.LastEntry != 21 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestAfterClose checks that requests which end after Close cause no panic.
func TestAfterClose(t *testing.T) {
	s := newSite(t)
	s.open()
	s.log.RecordEntryLater(Entry{Event: Clone, Agent: "a"})
	s.close()
	s.log.RecordEntryLater(Entry{Event: Clone, Agent: "b"})
	if err := s.log.RecordEntry(Entry{Event: Command}); err == nil {
		t.Error("an entry of a closed log is said to be written")
	}
	if r, err := s.verify(); err != nil || r.LastEntry != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// full is a file system whose writes fail while *is is true.
type full struct {
	store.FS
	is *bool
}

type fullFile struct {
	store.File
	is *bool
}

var errFull = errors.New("no space left")

func (d full) OpenFile(path string, flag int, perm fs.FileMode) (store.File, error) {
	f, err := d.FS.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return fullFile{f, d.is}, nil
}

func (f fullFile) WriteAt(p []byte, at int64) (int, error) {
	if *f.is {
		n, _ := f.File.WriteAt(p[:len(p)/2], at)
		return n, errFull
	}
	return f.File.WriteAt(p, at)
}

// TestFull checks that no queued entry is lost while the disk is full, and that a direct entry returns an error.
func TestFull(t *testing.T) {
	s := newSite(t)
	is := false
	s.disk = store.Disk{FS: full{store.LocalDisk.FS, &is}}
	synctest.Test(t, func(t *testing.T) {
		s.open()
		is = true
		if err := s.log.RecordEntry(Entry{Event: Command}); !errors.Is(err, errFull) {
			t.Errorf("got %v", err)
		}
		for k := range 3 {
			s.log.RecordEntryLater(Entry{Event: Sidelined, Agent: wire.AgentID(fmt.Sprint("a", k))})
			synctest.Wait()
		}
		is = false
		s.record("after")
		s.log.RecordEntryLater(Entry{Event: Sidelined, Agent: "a3"})
		synctest.Wait()
		s.round(1)
		s.close()
	})
	if r, err := s.verify(); err != nil || r.LastEntry != 6 || r.LastVerifiedEntry != 6 {
		t.Errorf("%+v, %v", r, err)
	}
	text, err := os.ReadFile(filepath.Join(s.dir, Folder, nameOfFileFrom(1)))
	if err != nil || !strings.Contains(string(text), `"agent":"a0"`) || !strings.Contains(string(text), `"agent":"a3"`) {
		t.Errorf("%v\n%s", err, text)
	}
}
