package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

var runFile = StateFile{Name: "run", Version: 3, MaxBytes: 1 << 20, Slots: 2}

func mustLoad(t testing.TB, s *RecordSlots) SavedRecord {
	t.Helper()
	found, err := s.Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func mustSave(t testing.TB, s *RecordSlots, pieces ...[]byte) {
	t.Helper()
	if err := s.WriteAndProtect(pieces...); err != nil {
		t.Fatal(err)
	}
}

// TestSlots checks that the newest record is loaded, for records of all lengths. If the newest record is damaged, the
// previous record must be loaded.
func TestSlots(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run")
	s := LocalDisk.NewRecordSlots(dir, &runFile)
	if _, err := s.Load(nil); !errors.Is(err, ErrNoRecord) {
		t.Fatalf("no file: %v", err)
	}
	for n := range 40 {
		body := bytes.Repeat([]byte{byte(n)}, n*n*37%9000)
		mustSave(t, s, body[:len(body)/3], body[len(body)/3:])
		found := mustLoad(t, LocalDisk.NewRecordSlots(dir, &runFile))
		if !bytes.Equal(found.Body, body) || found.NewerCopyDamage != nil {
			t.Fatalf("record %d: %d bytes, %v", n, len(found.Body), found.NewerCopyDamage)
		}
		if info, err := os.Stat(path + ".b"); err == nil && info.Size()%slotBlockSize != 0 {
			t.Errorf("a file has %d bytes", info.Size())
		}
	}
	if got := names(t, dir); !slices.Equal(got, []string{"run.a", "run.b"}) {
		t.Errorf("files %v", got)
	}
	mustSave(t, s, []byte("before"))
	mustSave(t, s, []byte("newest"))
	file := mustRead(t, path+".b")
	for at := range slotHeadSize + len("newest") + slotChecksumSize {
		if at >= 6 && at < 8 {
			continue // these header bytes are unused
		}
		flipped := bytes.Clone(file)
		flipped[at] ^= 0x10
		mustWrite(t, path+".b", flipped)
		again := LocalDisk.NewRecordSlots(dir, &runFile)
		found := mustLoad(t, again)
		if string(found.Body) != "before" || !errors.As(found.NewerCopyDamage, new(*CorruptError)) {
			t.Errorf("byte %d flipped: %q, %v", at, found.Body, found.NewerCopyDamage)
		}
	}
	mustWrite(t, path+".b", file)
	short := runFile
	short.MaxBytes = 3
	if _, err := LocalDisk.NewRecordSlots(dir, &short).Load(nil); !errors.As(err, new(*CorruptError)) {
		t.Errorf("records longer than the limit: %v", err)
	}
	mustWrite(t, path+".a", nil)
	mustWrite(t, path+".b", []byte("FMS1"))
	if _, err := LocalDisk.NewRecordSlots(dir, &runFile).Load(nil); !errors.As(err, new(*CorruptError)) {
		t.Errorf("both damaged: %v", err)
	}
}

// TestSlotsKeep checks that writes without a call of ProtectNewest never overwrite the protected copy, even after a
// restart.
func TestSlotsKeep(t *testing.T) {
	dir := t.TempDir()
	s := LocalDisk.NewRecordSlots(dir, &runFile)
	mustSave(t, s, []byte("one"))
	is := func(body string) func([]byte) bool { return func(x []byte) bool { return string(x) == body } }
	for range 3 {
		for _, other := range []string{"two", "three", "four"} {
			if err := s.Write([]byte(other)); err != nil {
				t.Fatal(err)
			}
		}
		s = LocalDisk.NewRecordSlots(dir, &runFile)
		if found, err := s.Load(is("one")); err != nil || string(found.Body) != "one" {
			t.Fatalf("%q, %v", found.Body, err)
		}
	}
	if _, err := s.Load(is("zero")); !errors.Is(err, ErrNoRecord) {
		t.Errorf("none that is wanted: %v", err)
	}
	if _, err := s.Load(is("four")); err != nil {
		t.Error(err)
	}
	mustSave(t, s, []byte("five")) // overwrites the first record
	if _, err := s.Load(is("one")); !errors.Is(err, ErrNoRecord) {
		t.Errorf("one is still there: %v", err)
	}
}

// TestSlotsVersion checks that a record of another format version is reported and not overwritten, and that a search
// skips it.
func TestSlotsVersion(t *testing.T) {
	dir, later := t.TempDir(), runFile
	later.Version++
	mustSave(t, LocalDisk.NewRecordSlots(dir, &later), []byte("of version 4"))
	s := LocalDisk.NewRecordSlots(dir, &runFile)
	version := (*FormatVersionError)(nil)
	if _, err := s.Load(nil); !errors.As(err, &version) || version.FileVersion != 4 || version.SupportedVersion != 3 {
		t.Errorf("a newer version: %v", err)
	}
	if _, err := s.Load(func([]byte) bool { return true }); !errors.Is(err, ErrNoRecord) {
		t.Errorf("a search found a record of another version: %v", err)
	}
	_, _ = s.Load(nil)
	mustSave(t, s, []byte("of version 3"))
	found, err := LocalDisk.NewRecordSlots(dir, &later).Load(func([]byte) bool { return true })
	if err != nil || string(found.Body) != "of version 4" {
		t.Errorf("the record of the other version: %q, %v", found.Body, err)
	}
}

// TestSlotsClear checks that a record cannot be loaded after Clear or SetAside.
func TestSlotsClear(t *testing.T) {
	s := LocalDisk.NewRecordSlots(t.TempDir(), &StateFile{Name: "update", Version: 3, MaxBytes: 100, Slots: 1})
	mustSave(t, s, []byte("new"))
	if err := s.MakeDurable(); err != nil {
		t.Error(err)
	}
	if err := s.Clear(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(nil); !errors.Is(err, ErrNoRecord) {
		t.Errorf("a record that was cleared: %v", err)
	}
	mustSave(t, s, []byte("again"))
	if found := mustLoad(t, s); string(found.Body) != "again" {
		t.Errorf("%+v", found)
	}
	if aside, err := s.SetAside(); err != nil || !strings.Contains(aside, "aside-1") {
		t.Errorf("%q, %v", aside, err)
	}
	if _, err := s.Load(nil); !errors.Is(err, ErrNoRecord) {
		t.Errorf("a record that was set aside: %v", err)
	}
}

// TestSlotsSyncOnce checks that a write requires only one sync once the files exist.
func TestSlotsSyncOnce(t *testing.T) {
	syncs := 0
	s := hooked(func(f File) File { return &countingFile{f, &syncs} }).NewRecordSlots(t.TempDir(), &runFile)
	mustSave(t, s, nil)
	mustSave(t, s, nil)
	syncs = 0
	for n := range 10 {
		mustSave(t, s, make([]byte, 100))
		if syncs != n+1 {
			t.Fatalf("%d syncs for %d records", syncs, n+1)
		}
	}
}

type countingFile struct {
	File
	syncs *int
}

func (f *countingFile) Sync() error { *f.syncs++; return f.File.Sync() }

// TestSlotsFailedWrite checks that a failed write leaves the previous record intact and can be retried.
func TestSlotsFailedWrite(t *testing.T) {
	var fail error
	dir := t.TempDir()
	s := hooked(func(f File) File {
		return &hookFile{File: f, write: func(p []byte) (int, error) {
			if fail != nil {
				return len(p) / 2, fail
			}
			return len(p), nil
		}}
	}).NewRecordSlots(dir, &runFile)
	mustSave(t, s, []byte("one"))
	mustSave(t, s, []byte("two"))
	fail = syscall.ENOSPC
	for range 2 {
		if err := s.WriteAndProtect([]byte("three")); !IsTransientWriteError(err) || !strings.Contains(err.Error(),
			filepath.Join(dir, "run")) {
			t.Fatalf("a full disk: %v", err)
		}
		if found := mustLoad(t, LocalDisk.NewRecordSlots(dir, &runFile)); string(found.Body) != "two" {
			t.Fatalf("after a failed write: %q", found.Body)
		}
	}
	fail = nil
	mustSave(t, s, []byte("three"))
	if found := mustLoad(t, LocalDisk.NewRecordSlots(dir, &runFile)); string(found.Body) != "three" ||
		found.NewerCopyDamage != nil {
		t.Errorf("%q, %v", found.Body, found.NewerCopyDamage)
	}
}

// TestSlotsPowerCuts repeatedly cuts the power at each operation of three writes. Afterwards Load must return the last
// acknowledged record or a later one. The protected copy must remain.
func TestSlotsPowerCuts(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	torn := 0
	for left := range 40 {
		for range 60 {
			d := &cuttableDisk{left: 1 << 30, names: map[string]*inode{}, durable: map[string]*inode{}}
			saved, tried := 0, 0
			for life := range 4 {
				d.left = left
				if life == 3 {
					d.left = 1 << 30
				}
				s := Disk{d}.NewRecordSlots("state", &runFile)
				found, err := s.Load(nil)
				if err == nil {
					err = s.MakeDurable()
				}
				if errors.Is(err, errPower) {
					d.cut(rnd)
					continue
				}
				now := 0
				if err == nil {
					_, _ = fmt.Sscan(string(found.Body), &now)
					if found.NewerCopyDamage != nil {
						torn++
					}
				} else if saved > 0 {
					t.Fatalf("record %d is lost: %v", saved, err)
				}
				if now < saved || now > tried {
					t.Fatalf("record %d is loaded, %d was saved and %d tried", now, saved, tried)
				}
				for saved = now; ; {
					tried = saved + 1
					body := bytes.Repeat(fmt.Appendf(nil, "%d ", tried), 1+rnd.IntN(900))
					if s.WriteAndProtect(body) != nil || tried > 1000 || d.left > 1<<20 {
						break
					}
					saved = tried
				}
				d.cut(rnd)
			}
		}
	}
	if torn == 0 {
		t.Error("no write was torn")
	}
}

// cut discards data that was not synced and restores the power.
func (d *cuttableDisk) cut(rnd *rand.Rand) {
	names := maps.Clone(d.durable)
	if rnd.IntN(2) == 0 {
		names = maps.Clone(d.names)
	}
	for name, i := range names {
		after := bytes.Clone(i.safe)
		if n := len(i.data); n > len(after) && rnd.IntN(2) == 0 {
			after = append(after, make([]byte, rnd.IntN(n-len(after)+1))...)
		}
		const sector = 512
		for at := 0; at < len(after); at += sector {
			if end := min(at+sector, len(after)); rnd.IntN(2) == 0 && end <= len(i.data) {
				copy(after[at:end], i.data[at:end])
			}
		}
		names[name] = &inode{disk: d, data: after, safe: bytes.Clone(after)}
	}
	d.names, d.durable = names, maps.Clone(names)
}

func (i *inode) WriteAt(p []byte, at int64) (int, error) {
	if err := i.disk.on(); err != nil {
		return 0, err
	}
	if more := int(at) + len(p) - len(i.data); more > 0 {
		i.data = append(i.data, make([]byte, more)...)
	}
	return copy(i.data[at:], p), nil
}

func (i *inode) ReadAt(p []byte, at int64) (int, error) {
	n := copy(p, i.data[min(int(at), len(i.data)):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (i *inode) Stat() (fs.FileInfo, error) { return sizeInfo{size: int64(len(i.data))}, nil }

type sizeInfo struct {
	fs.FileInfo
	size int64
}

func (i sizeInfo) Size() int64 { return i.size }
