package sources

import (
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/rows"
	"github.com/fedmesh/fedmesh/store"
)

// envAt returns the environment of a collector in a test.
func envAt(dir string) data.CollectorEnv {
	return data.CollectorEnv{RingFolder: filepath.Join(dir, "readings"), Disk: store.LocalDisk,
		RingLimits: store.RingLimits{MaxBytes: 8 << 20},
		Now:        time.Now, Logger: slog.New(slog.DiscardHandler)}
}

// pass lets the given time pass and waits until the goroutines that wake up have finished their work.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func record(t *testing.T, e data.CollectorEnv) *readingRecorder {
	t.Helper()
	return newReadingRecorder(e, newSourceStats(e.Now, e.Logger))
}

// come returns the new readings of a feed.
func come(t testing.TB, f rows.ReadingFeed) (all []data.Reading) {
	t.Helper()
	void := func(why string) { t.Errorf("void: %s", why) }
	if err := f.Read(void, func(r data.Reading) bool { all = append(all, r); return true }); err != nil {
		t.Fatal(err)
	}
	return all
}

// same compares readings, including NaN values.
func same(a, b []data.Reading) bool {
	return slices.EqualFunc(a, b, func(a, b data.Reading) bool {
		bits := math.Float64bits(a.Value) == math.Float64bits(b.Value)
		a.Value, b.Value, a.SequenceNumber, b.SequenceNumber = 0, 0, 0, 0
		if a.Source == 0 || b.Source == 0 { // the test does not specify the source
			a.Source, b.Source = 0, 0
		}
		return bits && a == b
	})
}

var mixed = []data.Reading{
	{Input: "pm25", Time: 1772323200e9, Value: 12.5},
	{Input: "wind", Time: 1772323200e9, Text: "NNE", Value: math.NaN()},
	{Input: "pm25", Time: 1772323100e9, Value: math.Inf(-1)},
	{Input: "door", Time: 1772323201e9, Text: "true", Value: 1},
	{Input: "größe", Time: -5, Text: "1.5", Value: 1.5},
	{Input: "", Time: math.MaxInt64, Value: math.SmallestNonzeroFloat64},
}

func TestEncode(t *testing.T) {
	var e readingBatchEncoder
	for _, r := range mixed {
		if !e.addReading(r, 1000) {
			t.Fatal("no room")
		}
	}
	size := len(e.body)
	if e.addReading(data.Reading{Input: "more", Text: "x"},
		size) || len(e.body) != size || e.readingCount != len(mixed) ||
		e.newestTime != math.MaxInt64 {
		t.Errorf("%d readings in %d bytes up to %d, want %d in %d", e.readingCount, len(e.body), e.newestTime,
			len(mixed),
			size)
	}
	if !e.addReading(mixed[0], 1000) {
		t.Error("no room after one that did not fit")
	}
	var got []data.Reading
	err := decodeReadingBatch(e.body, 0, func(r data.Reading) { got = append(got, r) })
	if want := append(slices.Clone(mixed), mixed[0]); err != nil || !same(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// FuzzDecode checks that readings decoded from any bytes are the same after they are encoded and decoded again.
func FuzzDecode(f *testing.F) {
	var e readingBatchEncoder
	for _, r := range mixed {
		e.addReading(r, 1000)
	}
	f.Add(e.body)
	f.Add(e.body[:len(e.body)-3])
	f.Add([]byte{0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, p []byte) {
		var first, second []data.Reading
		if decodeReadingBatch(p, 0, func(r data.Reading) { first = append(first, r) }) != nil {
			return
		}
		var e readingBatchEncoder
		for _, r := range first {
			if !e.addReading(r, 1<<30) {
				t.Fatal("no room")
			}
		}
		err := decodeReadingBatch(e.body, 0, func(r data.Reading) { second = append(second, r) })
		if err != nil || !same(first, second) {
			t.Errorf("%v: %+v became %+v", err, first, second)
		}
	})
}

// TestRecorder checks that readings are passed on as soon as they are durable, to each feed once and in order. After a
// restart they must be passed on again.
func TestRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := envAt(t.TempDir())
		r := record(t, e)
		f, other := r.newReadingFeed(nil), r.newReadingFeed(nil)
		if f.Changed() || len(come(t, f)) != 0 {
			t.Error("something is there")
		}
		for _, reading := range mixed[:3] {
			r.recordReading(reading)
		}
		pass(ringWriteInterval - 1)
		if f.Changed() {
			t.Errorf("readings are handed out after %v", ringWriteInterval-1)
		}
		pass(1)
		if !f.Changed() || !same(come(t, f), mixed[:3]) || f.Changed() {
			t.Errorf("not all readings are handed out after %v", ringWriteInterval)
		}
		for _, reading := range mixed[3:] {
			r.recordReading(reading)
		}
		if err := r.close(); err != nil { // close writes the pending readings
			t.Fatal(err)
		}
		r = record(t, e)
		if got := come(t, r.newReadingFeed(nil)); !same(got, mixed) {
			t.Errorf("after a restart %+v", got)
		}
		if !same(come(t, other), mixed) {
			t.Error("another feed gets other readings")
		}
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestHourOfReadings records a thousand readings per second for an hour. Memory must stay constant, the ring must stay
// within its limits, each reading must be passed on once, and the numbers of writes and syncs must be as documented.
func TestHourOfReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := envAt(t.TempDir())
		var writes, syncs atomic.Int64
		e.Disk = store.Disk{FS: countingFS{e.Disk.FS, &writes, &syncs}}
		r := record(t, e)
		f := r.newReadingFeed(nil)
		next, early := int64(0), uint64(0)
		names := []string{"a", "b", "c", "d"}
		for second := range 3600 {
			for i := range 1000 {
				r.recordReading(data.Reading{Input: names[i%4], Time: int64(second*1000 + i), Value: float64(i)})
			}
			pass(time.Second)
			if second%60 != 59 {
				continue
			}
			if size := r.ringSize(); size.Bytes > e.RingLimits.MaxBytes {
				t.Fatalf("the ring has %+v", size)
			}
			if err := f.Read(nil, func(reading data.Reading) bool {
				if reading.Time != next || reading.Value != float64(next%1000) || reading.Input != names[next%4] {
					t.Fatalf("reading %+v, want %d", reading, next)
				}
				next++
				return true
			}); err != nil {
				t.Fatal(err)
			}
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			if second == 299 {
				early = m.HeapAlloc
			}
			if early > 0 && m.HeapAlloc > early+early/4+2<<20 {
				t.Fatalf("after %d s %d bytes are in use, %d after 300 s", second+1, m.HeapAlloc, early)
			}
		}
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
		for i, c := range r.stats.columnReports() {
			t.Errorf("column %d: %+v", i, c)
		}
		size := r.ringSize()
		t.Logf("%d writes and %d syncs an hour; the ring has %+v; %d readings were handed out", writes.Load(),
			syncs.Load(), size, next)
		if next < 3_590_000 || size.Bytes < e.RingLimits.MaxBytes*7/8 {
			t.Errorf("%d readings were handed out, the ring has %+v", next, size)
		}
		segments := int64(3600 * 1000 * 14 / (e.RingLimits.MaxBytes / 16))
		if writes.Load() > 361 || syncs.Load() > 361+segments {
			t.Errorf("%d writes and %d syncs an hour", writes.Load(), syncs.Load())
		}
	})
}

// countingFS counts writes and syncs, including syncs of folders.
type countingFS struct {
	store.FS
	writes, syncs *atomic.Int64
}

func (c countingFS) OpenFile(path string, flag int, perm fs.FileMode) (store.File, error) {
	f, err := c.FS.OpenFile(path, flag, perm)
	return countingFile{f, c}, err
}

func (c countingFS) SyncDir(dir string) error {
	c.syncs.Add(1)
	return c.FS.SyncDir(dir)
}

type countingFile struct {
	store.File
	of countingFS
}

func (f countingFile) WriteAt(p []byte, at int64) (int, error) {
	f.of.writes.Add(1)
	return f.File.WriteAt(p, at)
}

func (f countingFile) Sync() error {
	f.of.syncs.Add(1)
	return f.File.Sync()
}

// fullFS rejects new data while it is full.
type fullFS struct {
	store.FS
	full *atomic.Bool
}

func (d fullFS) Mkdir(dir string, perm fs.FileMode) error {
	if d.full.Load() {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOSPC}
	}
	return d.FS.Mkdir(dir, perm)
}

func (d fullFS) OpenFile(path string, flag int, perm fs.FileMode) (store.File, error) {
	f, err := d.FS.OpenFile(path, flag, perm)
	return fullFile{f, d}, err
}

type fullFile struct {
	store.File
	of fullFS
}

func (f fullFile) WriteAt(p []byte, at int64) (int, error) {
	if f.of.full.Load() {
		n, _ := f.File.WriteAt(p[:len(p)/2], at)
		return n, &fs.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
	}
	return f.File.WriteAt(p, at)
}

// TestRecorderOpensLater checks that a ring that could not be opened at the start is opened later, even if no readings
// arrive.
func TestRecorderOpensLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		e := envAt(t.TempDir())
		e.Disk = store.Disk{FS: fullFS{e.Disk.FS, &full}}
		full.Store(true)
		r := record(t, e)
		full.Store(false)
		pass(ringWriteInterval)
		if got := r.stats.currentTroubles(nil); len(got) > 0 || r.ringIfOpen() == nil {
			t.Errorf("the ring is not open: %+v", got)
		}
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
}

// TestRecorderClosesOnFullDisk checks that close does not wait for a full disk.
func TestRecorderClosesOnFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		e := envAt(t.TempDir())
		e.Disk = store.Disk{FS: fullFS{e.Disk.FS, &full}}
		full.Store(true)
		r := record(t, e)
		r.recordReading(data.Reading{Input: "a", Time: 1})
		pass(3 * ringWriteInterval)
		_ = r.close() // may return the error of the full disk
	})
}

// TestRecorderOnFullDisk checks that a full disk, at the start or later, is reported and that readings wait for space.
// Readings above the limit must be counted as dropped. When space is free again, all waiting readings must be written
// and the report must end.
func TestRecorderOnFullDisk(t *testing.T) {
	for _, when := range []string{"from the start", "later"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var full atomic.Bool
				e := envAt(t.TempDir())
				e.Disk = store.Disk{FS: fullFS{e.Disk.FS, &full}}
				full.Store(when != "later")
				r := record(t, e)
				f, n := r.newReadingFeed(nil), 0
				put := func(many int) {
					for range many {
						r.recordReading(data.Reading{Input: "a", Time: int64(n)})
						n++
					}
					pass(3 * ringWriteInterval)
				}
				if when == "later" {
					put(10)
					full.Store(true)
				}
				put(20)
				put(20)
				if got := r.stats.currentTroubles(nil); len(got) != 1 || got[0].Kind != data.TroubleStorage ||
					!strings.Contains(got[0].Text, "no space left") || !strings.Contains(got[0].Text, e.RingFolder) {
					t.Errorf("troubles %+v", got)
				}
				put(maxPendingReadings)
				if c := r.stats.columnReports(); len(c) != 1 || c[0].Unused[grid.ReasonNoRoom] != 40 {
					t.Errorf("columns %+v", c)
				}
				full.Store(false)
				put(0)
				n -= 40
				put(10)
				if got := r.stats.currentTroubles(nil); got != nil {
					t.Errorf("troubles %+v", got)
				}
				got := come(t, f)
				for i, reading := range got {
					if reading.Time != int64(i) {
						t.Fatalf("reading %d is %+v", i, reading)
					}
				}
				if len(got) != n {
					t.Errorf("%d readings, want %d", len(got), n)
				}
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestRecorderWithAnOldRing checks that a ring in another format version is renamed, and that this is reported for some
// time.
func TestRecorderWithAnOldRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := envAt(t.TempDir())
		r := record(t, e)
		r.recordReading(mixed[0])
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(e.RingFolder, "ring-000000000001.segment")
		p, err := store.LocalDisk.ReadFile(path)
		if err == nil {
			p[4] = 9
			err = store.LocalDisk.WriteFileDurably(path, p, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		r = record(t, e)
		want := fmt.Sprintf("%s has format version 9, but this program reads version 3; the file was renamed to", path)
		if got := r.stats.currentTroubles(nil); len(got) != 1 || got[0].Kind != data.TroubleStorage ||
			!strings.Contains(got[0].Text, want) {
			t.Errorf("troubles %+v", got)
		}
		r.recordReading(mixed[1])
		pass(damageReportDuration)
		if got := r.stats.currentTroubles(nil); got != nil || !same(come(t, r.newReadingFeed(nil)), mixed[1:2]) {
			t.Errorf("troubles %+v", got)
		}
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
	})
}
