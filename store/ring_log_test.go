package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// numbered returns a batch whose entries contain their own entry numbers.
func numbered(first uint64, entries int) RingBatch {
	b := RingBatch{EntryCount: entries, NewestEntryTime: int64(first) + int64(entries) - 1}
	for i := range entries {
		b.Body = binary.LittleEndian.AppendUint64(b.Body, first+uint64(i))
	}
	return b
}

var roomy = RingLimits{MaxBytes: 16 << 20}

func mustOpenRing(t testing.TB, d Disk, dir string, keep RingLimits) (*RingLog, RingDamage) {
	t.Helper()
	r, found, err := d.OpenRing(dir, keep)
	if err != nil {
		t.Fatal(err)
	}
	return r, found
}

func mustFill(t testing.TB, r *RingLog, batches, entries int) {
	t.Helper()
	for range batches {
		if err := r.Append(numbered(r.NextEntryNumber(), entries)); err != nil {
			t.Fatal(err)
		}
	}
}

// readNumbers reads a ring from a position. It checks that each entry contains its own entry number and is read once.
func readNumbers(t testing.TB, r *RingLog, from RingPosition) (numbers []uint64, to RingPosition, err error) {
	t.Helper()
	to, err = r.ReadBatches(from, func(first uint64, b RingBatch) {
		if want := numbered(first, b.EntryCount); !bytes.Equal(b.Body,
			want.Body) || b.NewestEntryTime != want.NewestEntryTime {
			t.Errorf("the batch from %d on is %x", first, b.Body)
		}
		if n := len(numbers); n > 0 && first <= numbers[n-1] {
			t.Errorf("entry %d comes after %d", first, numbers[n-1])
		}
		for i := range b.EntryCount {
			numbers = append(numbers, first+uint64(i))
		}
	})
	return numbers, to, err
}

func wantNumbers(t testing.TB, r *RingLog, from RingPosition, first, last uint64) RingPosition {
	t.Helper()
	got, to, err := readNumbers(t, r, from)
	if err != nil {
		t.Fatal(err)
	}
	want := int(last + 1 - first)
	if len(got) != want || want > 0 && (got[0] != first || got[want-1] != last) {
		t.Errorf("%d entries from %v on, want %d to %d", len(got), got[:min(3, len(got))], first, last)
	}
	return to
}

func TestRing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	r, found := mustOpenRing(t, LocalDisk, dir, roomy)
	if found.CutBytes != 0 || found.SetAsideErrors != nil || r.Size() != (RingSize{}) || r.NextEntryNumber() != 1 {
		t.Errorf("a new ring: %+v, %+v", found, r.Size())
	}
	place := wantNumbers(t, r, RingPosition{}, 1, 0)
	mustFill(t, r, 3, 10)
	place = wantNumbers(t, r, place, 1, 30)
	wantNumbers(t, r, place, 31, 30)
	mustFill(t, r, 1, 5)
	place = wantNumbers(t, r, place, 31, 35)
	if place.NextEntryNumber() != 36 || r.NextEntryNumber() != 36 {
		t.Errorf("read up to %d, the ring to %d", place.NextEntryNumber(), r.NextEntryNumber())
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Append(numbered(36, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("Append after Close: %v", err)
	}
	for range 2 {
		r, found = mustOpenRing(t, LocalDisk, dir, roomy)
		if found.CutBytes != 0 || found.SetAsideErrors != nil {
			t.Errorf("found %+v", found)
		}
		wantNumbers(t, r, RingPosition{}, 1, r.NextEntryNumber()-1)
		mustFill(t, r, 1, 1)
	}
	if size := r.Size(); size.Entries != 37 || size.NewestEntryTime != 37 || size.Segments != 1 {
		t.Errorf("size %+v", size)
	}
}

// TestRingBounds checks that the ring never exceeds its limits, and that at most a sixteenth more than necessary is
// removed. Entries may exceed the maximum age by a quarter.
func TestRingBounds(t *testing.T) {
	for name, keep := range map[string]RingLimits{
		"bytes": {MaxBytes: MinRingBytes}, "entries": {MaxBytes: roomy.MaxBytes, MaxEntries: 1600},
		"age": {MaxBytes: roomy.MaxBytes, MaxAge: 1600},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "ring")
			r, _ := mustOpenRing(t, LocalDisk, dir, keep)
			entries := 10
			if name == "bytes" {
				entries = 5000
			}
			for i := range 600 {
				mustFill(t, r, 1, entries)
				size, oldest := r.Size(), int64(r.NextEntryNumber())-int64(r.Size().Entries)
				disk := int64(0)
				for _, n := range names(t, dir) {
					disk += int64(len(mustRead(t, filepath.Join(dir, n))))
				}
				if size.Bytes > keep.MaxBytes || disk != size.Bytes ||
					keep.MaxEntries > 0 && size.Entries > keep.MaxEntries ||
					keep.MaxAge > 0 && size.NewestEntryTime-oldest > int64(keep.MaxAge+keep.MaxAge/4)+int64(entries) {
					t.Fatalf("after batch %d: %+v, %d bytes on the disk, the oldest is %d", i, size, disk, oldest)
				}
			}
			size := r.Size()
			if least := map[string]bool{"bytes": size.Bytes > MinRingBytes*14/16, "entries": size.Entries > 1400,
				"age": size.Entries > 1600}; !least[name] {
				t.Errorf("only %+v is kept", size)
			}
			first := r.NextEntryNumber() - uint64(size.Entries)
			wantNumbers(t, r, RingPosition{}, first, r.NextEntryNumber()-1)
			mustCloseRing(t, r)
			r, _ = mustOpenRing(t, LocalDisk, dir, keep)
			if got := r.Size(); got != size {
				t.Errorf("opened again: %+v, was %+v", got, size)
			}
			mustCloseRing(t, r)
			if name == "entries" { // open the ring again with a lower limit
				r, _ = mustOpenRing(t, LocalDisk, dir, RingLimits{MaxBytes: roomy.MaxBytes, MaxEntries: 160})
				mustFill(t, r, 1, 1)
				if got := r.Size().Entries; got > 160 {
					t.Errorf("%d entries are left", got)
				}
				mustCloseRing(t, r)
			}
		})
	}
}

func mustCloseRing(t testing.TB, r *RingLog) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRingOvertakesAReader checks that a reader whose next entries were removed continues with the oldest remaining
// entry.
func TestRingOvertakesAReader(t *testing.T) {
	r, _ := mustOpenRing(t, LocalDisk, filepath.Join(t.TempDir(), "ring"), RingLimits{MaxBytes: roomy.MaxBytes,
		MaxEntries: 160})
	mustFill(t, r, 5, 10)
	place := wantNumbers(t, r, RingPosition{}, 1, 50)
	mustFill(t, r, 40, 10)
	first := r.NextEntryNumber() - uint64(r.Size().Entries)
	if first <= 51 {
		t.Fatalf("the oldest is %d: the test shows nothing", first)
	}
	wantNumbers(t, r, place, first, 450)
	mustCloseRing(t, r)
}

// ringDamage is a test case: a change of a segment file and the expected result.
type ringDamage struct {
	name   string
	of     int // index of the segment to change
	change func(p []byte) []byte
	cut    bool
	aside  string // expected text in the error of a renamed segment
	lost   []uint64
}

var ringDamages = []ringDamage{
	{"a flip in the middle", 2, flipAt(segmentHeadSize + batchHeadSize), false, "the ring file contains invalid data " +
		"or ends too early", []uint64{11,
		30}},
	{"a flip in the middle of the last", 3, flipAt(segmentHeadSize + batchHeadSize), false, "the ring file contains " +
		"invalid data or ends too early",
		[]uint64{31, 45}},
	{"a length in the middle of the last", 3, flipAt(segmentHeadSize + 6), false, "the ring file contains invalid " +
		"data or ends too early",
		[]uint64{31, 45}},
	{"a flip in the head", 2, flipAt(9), false, "the ring file contains invalid data or ends too " +
		"early", []uint64{11, 30}},
	{"another magic", 2, flipAt(0), false, "the ring file contains invalid data or ends too early", []uint64{11, 30}},
	{"another file's content", 2, func(p []byte) []byte {
		return append(appendSegmentHead(nil, ringSegment{number: 9, firstEntry: 11}), p[segmentHeadSize:]...)
	}, false, "the file belongs to segment 9", []uint64{11, 30}},
	{"another version", 2, func(p []byte) []byte { p[4] = 7; return p }, false,
		"has format version 7, but this program reads version 3", []uint64{11, 30}},
	{"a batch twice", 2, func(p []byte) []byte {
		again := p[segmentHeadSize : segmentHeadSize+batchOverhead+10*8]
		return slices.Concat(p, again, again)
	}, false, "entry number is 11 instead of 31", []uint64{11, 30}},
	{"the last batch twice", 3, func(p []byte) []byte {
		return append(p, p[len(p)-batchOverhead-5*8:]...)
	}, true, "", nil},
	{"a torn end", 3, func(p []byte) []byte { return p[:len(p)-3] }, true, "", []uint64{41, 45}},
	{"an end of zeros", 3, func(p []byte) []byte { return append(p, make([]byte, 40)...) }, true, "", nil},
	{"a torn end with zeros before", 3, func(p []byte) []byte {
		clear(p[len(p)-batchOverhead-5*8 : len(p)-20])
		return p
	}, true, "", []uint64{41, 45}},
	{"half a head", 3, func(p []byte) []byte { return p[:11] }, true, "", []uint64{31, 45}},
	{"a head of zeros", 3, func(p []byte) []byte { return make([]byte, len(p)) }, true, "", []uint64{31, 45}},
	{"an end that could not be cut back", 2, func(p []byte) []byte {
		return append(p, "FMB1 half"...)
	}, true, "", nil},
	{"an empty file", 3, func([]byte) []byte { return nil }, false, "", []uint64{31, 45}},
}

// TestRingDamage checks that a damaged segment is reported and renamed, and that invalid bytes at the end are cut off.
// All other entries must be readable.
func TestRingDamage(t *testing.T) {
	for _, tt := range ringDamages {
		t.Run(tt.name, tt.test)
	}
}

func (tt ringDamage) test(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	r, _ := mustOpenRing(t, LocalDisk, dir, RingLimits{MaxBytes: roomy.MaxBytes, MaxEntries: 320})
	for _, entries := range []int{10, 10, 10, 10, 5} {
		mustFill(t, r, 1, entries)
		if n := r.NextEntryNumber() - 1; n == 10 || n == 30 {
			r.endSegment()
		}
	}
	mustCloseRing(t, r)
	path := r.segmentPath(uint64(tt.of))
	p := mustRead(t, path)
	mustWrite(t, path, tt.change(p))
	r, found := mustOpenRing(t, LocalDisk, dir, roomy)
	if (found.CutBytes > 0) != tt.cut || (len(found.SetAsideErrors) > 0) != (tt.aside != "") {
		t.Fatalf("found %+v", found)
	}
	if tt.aside != "" {
		err := found.SetAsideErrors[0]
		aside := filepath.Join(dir, fmt.Sprintf("ring-%012d.aside-1.segment", tt.of))
		if !strings.Contains(err.Error(), tt.aside) || !strings.Contains(err.Error(), "renamed to "+aside) {
			t.Errorf("error %v", err)
		}
		if v := (*FormatVersionError)(nil); strings.Contains(tt.name, "version") != errors.As(err, &v) {
			t.Errorf("error %v is of type %T", err, err)
		}
		mustRead(t, aside)
	}
	want := []uint64{}
	for n := uint64(1); n <= 45; n++ {
		if tt.lost == nil || n < tt.lost[0] || n > tt.lost[1] {
			want = append(want, n)
		}
	}
	got, place, err := readNumbers(t, r, RingPosition{})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("read %v, %v; want %v", got, err, want)
	}
	next := r.NextEntryNumber()
	mustFill(t, r, 2, 3)
	wantNumbers(t, r, place, next, next+5)
	mustCloseRing(t, r)
	if r, found = mustOpenRing(t, LocalDisk, dir, roomy); found.CutBytes != 0 || found.SetAsideErrors != nil {
		t.Errorf("opened again: %+v", found)
	}
	mustCloseRing(t, r)
}

func flipAt(at int) func(p []byte) []byte {
	return func(p []byte) []byte { p[at] ^= 1; return p }
}

// TestRingDamageWhileOpen checks that a reader detects damage in an open ring and continues after it.
func TestRingDamageWhileOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	r, _ := mustOpenRing(t, LocalDisk, dir, RingLimits{MaxBytes: roomy.MaxBytes, MaxEntries: 160})
	mustFill(t, r, 3, 10) // one segment per batch
	p := mustRead(t, r.segmentPath(2))
	mustWrite(t, r.segmentPath(2), flipAt(segmentHeadSize+batchHeadSize)(p))
	got, place, err := readNumbers(t, r, RingPosition{})
	if damaged := (*CorruptError)(nil); !errors.As(err,
		&damaged) || damaged.Path != r.segmentPath(2) || len(got) != 10 {
		t.Errorf("%v, %v", got, err)
	}
	place = wantNumbers(t, r, place, 21, 30)
	p = mustRead(t, r.segmentPath(3))
	mustWrite(t, r.segmentPath(3), flipAt(segmentHeadSize+batchHeadSize)(p))
	if _, _, err = readNumbers(t, r, RingPosition{}); err == nil {
		t.Error("the last segment is damaged, and read")
	}
	mustFill(t, r, 1, 10)
	wantNumbers(t, r, place, 31, 40)
	if size := r.Size(); size.Entries != 20 || size.Segments != 2 {
		t.Errorf("size %+v", size)
	}
	mustCloseRing(t, r)
}

// TestRingOnFailingDisk checks the error of a full or failing disk. No entry may be lost or stored twice, and a retry
// of the same batch must succeed.
func TestRingOnFailingDisk(t *testing.T) {
	for _, tt := range []struct {
		name string
		fail hookFile
	}{
		{"short write", hookFile{write: func(p []byte) (int, error) { return 7, syscall.ENOSPC }}},
		{"written, not synced", hookFile{write: func(p []byte) (int, error) { return len(p), syscall.EIO }}},
		{"cannot cut back", hookFile{
			write:    func(p []byte) (int, error) { return 7, syscall.ENOSPC },
			truncate: func() error { return syscall.EIO },
		}},
		{"written, cannot cut back", hookFile{
			write:    func(p []byte) (int, error) { return len(p), syscall.EIO },
			truncate: func() error { return syscall.EIO },
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, begun := range []bool{true, false} {
				dir := filepath.Join(t.TempDir(), "ring")
				var files []*hookFile
				now := hookFile{}
				become := func(f hookFile) {
					now = f
					for _, file := range files {
						file.write, file.truncate = f.write, f.truncate
					}
				}
				disk := hooked(func(inner File) File {
					files = append(files, &hookFile{File: inner, write: now.write, truncate: now.truncate})
					return files[len(files)-1]
				})
				r, _ := mustOpenRing(t, disk, dir, roomy)
				if begun {
					mustFill(t, r, 2, 10)
				}
				become(tt.fail)
				next := r.NextEntryNumber()
				for range 2 {
					if err := r.Append(numbered(next, 10)); err == nil || !strings.Contains(err.Error(), dir) {
						t.Errorf("error %v", err)
					}
				}
				become(hookFile{})
				mustFill(t, r, 2, 10)
				wantNumbers(t, r, RingPosition{}, 1, next+19)
				mustCloseRing(t, r)
				r, found := mustOpenRing(t, LocalDisk, dir, roomy)
				if found.SetAsideErrors != nil {
					t.Errorf("found %+v", found)
				}
				wantNumbers(t, r, RingPosition{}, 1, next+19)
				mustCloseRing(t, r)
			}
		})
	}
}

func TestRingReadErrorIsNotDamage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	r, _ := mustOpenRing(t, LocalDisk, dir, roomy)
	mustFill(t, r, 1, 10)
	mustCloseRing(t, r)
	_, _, err := hooked(func(f File) File {
		return &hookFile{File: f, read: func() error { return fmt.Errorf("read: %w", syscall.EIO) }}
	}).OpenRing(dir, roomy)
	if !errors.Is(err, syscall.EIO) {
		t.Fatalf("error %v, want EIO", err)
	}
	r, _ = mustOpenRing(t, LocalDisk, dir, roomy)
	wantNumbers(t, r, RingPosition{}, 1, 10)
	mustCloseRing(t, r)
}

// FuzzRing checks that a ring can be opened with arbitrary bytes in its segments, and that it then stores and returns
// new entries.
func FuzzRing(f *testing.F) {
	of := func(number, first uint64, batches ...RingBatch) []byte {
		b := appendSegmentHead(nil, ringSegment{number: number, firstEntry: first})
		for _, x := range batches {
			b = appendBatch(b, x.first(), x)
		}
		return b
	}
	sound, next := of(1, 1, numbered(1, 2), numbered(3, 3)), of(2, 6, numbered(6, 2))
	f.Add(sound, []byte(nil))
	f.Add(sound, next)
	f.Add(next, sound)
	f.Add(sound[:len(sound)-3], next)
	f.Add(flipAt(40)(bytes.Clone(sound)), next[:len(next)-1])
	f.Add([]byte(nil), of(2, 1<<63, numbered(1<<63, 1)))
	f.Add(append(bytes.Clone(sound), "FMB1\xff\xff\xff\x7f"...), sound)
	f.Fuzz(func(t *testing.T, p, q []byte) {
		d := newCuttableDisk(1 << 30)
		d.names["ring/ring-000000000001.segment"] = &inode{disk: d, data: bytes.Clone(p)}
		if q != nil {
			d.names["ring/ring-000000000002.segment"] = &inode{disk: d, data: bytes.Clone(q)}
		}
		r, _ := mustOpenRing(t, Disk{d}, "ring", roomy)
		next, size := r.NextEntryNumber(), r.Size()
		entries := 0
		place, err := r.ReadBatches(RingPosition{}, func(_ uint64, b RingBatch) { entries += b.EntryCount })
		if err != nil || entries != size.Entries {
			t.Fatalf("%d entries are read of %d: %v", entries, size.Entries, err)
		}
		mustFill(t, r, 1, 3)
		wantNumbers(t, r, place, next, next+2)
		mustCloseRing(t, r)
		r, found := mustOpenRing(t, Disk{d}, "ring", roomy)
		if found.CutBytes != 0 || found.SetAsideErrors != nil || r.Size().Entries != size.Entries+3 {
			t.Fatalf("opened again: %+v, %+v", found, r.Size())
		}
		mustCloseRing(t, r)
	})
}

// first returns the entry number of the first entry in a batch that numbered created.
func (b RingBatch) first() uint64 { return binary.LittleEndian.Uint64(b.Body) }

// TestRingAgeOfASegment checks that each segment covers at most its share (a sixteenth) of the maximum age.
func TestRingAgeOfASegment(t *testing.T) {
	keep := RingLimits{MaxBytes: roomy.MaxBytes, MaxAge: 160 * time.Second}
	r, _ := mustOpenRing(t, LocalDisk, filepath.Join(t.TempDir(), "ring"), keep)
	for i := range 40 {
		b := numbered(r.NextEntryNumber(), 1)
		b.NewestEntryTime = int64(i) * int64(time.Second)
		if err := r.Append(b); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.Size().Segments; got != 4 {
		t.Errorf("%d segments in 40 s of a ring of 160 s", got)
	}
	mustCloseRing(t, r)
}

// TestRingWrongTimes checks that a few batches with times years ahead do not remove the batches before them, and expire
// together with the batches after them.
func TestRingWrongTimes(t *testing.T) {
	keep := RingLimits{MaxBytes: roomy.MaxBytes, MaxAge: 160 * time.Second}
	dir := filepath.Join(t.TempDir(), "ring")
	r, _ := mustOpenRing(t, LocalDisk, dir, keep)
	second := 0
	fill := func(seconds int, ahead time.Duration) {
		for range seconds {
			second++
			b := numbered(r.NextEntryNumber(), 1)
			b.NewestEntryTime = int64(time.Duration(second)*time.Second + ahead)
			if err := r.Append(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(120, 0)
	fill(12, 9*365*24*time.Hour)
	fill(28, 0)
	if n := r.Size().Entries; n != 160 {
		t.Errorf("%d of 160 entries within 160 s are left", n)
	}
	mustCloseRing(t, r)
	r, _ = mustOpenRing(t, LocalDisk, dir, keep)
	fill(240, 0)
	if n := r.Size().Entries; n < 160 || n > 200 {
		t.Errorf("%d entries of a second each after 400 s, and an age of 160 s", n)
	}
	mustCloseRing(t, r)
}
