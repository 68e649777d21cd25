package sources

import (
	"compress/gzip"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/rows"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
)

// scaled is a RowPreparer that rejects targets above 1000 and scales columns.
type scaled struct{ st learner.Standardization }

func (s scaled) PrepareSamples(fresh *learner.Samples[float32], _ bool) error {
	if b := fresh.All(); slices.Max(b.Y) > 1000 {
		return errors.New("a target above 1000")
	}
	return fresh.Standardize(s.st)
}

func (s scaled) PrepareRowsAgain(x, y []float32) {
	_ = learner.NewSamples(len(s.st.Mean)-1, x, y).Standardize(s.st)
}

// both follows the same CSV file twice, once with rows in memory and once with rows that are moved to a file above a
// small number.
type both struct {
	*csvHarness
	t            *testing.T
	memory, file data.QueriedRows
}

func followBoth(t *testing.T, name, text string, w data.RowQuery, c data.Config) *both {
	t.Helper()
	b := &both{csvHarness: &csvHarness{path: filepath.Join(t.TempDir(), name)}, t: t}
	b.set(text)
	c.CSVPath = b.path
	for i, r := range []*data.QueriedRows{&b.memory, &b.file} {
		s, err := Open(&c)
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			s.(*csvFile).rowStorage = rows.StorageSettings{Folder: t.TempDir(), MaxMemoryBytes: 4000}
		}
		*r = s.OpenRows(w)
	}
	return b
}

// set writes a text. It compresses the text if the file name requires it.
func (b *both) set(text string) {
	b.t.Helper()
	if isCompressedPath(b.path) {
		var z strings.Builder
		w := gzip.NewWriter(&z)
		_, err := w.Write([]byte(text))
		if err = errors.Join(err, w.Close()); err != nil {
			b.t.Fatal(err)
		}
		text = z.String()
	}
	b.put(b.t, text)
}

// agree checks that the snapshots from memory and from the file are bit-identical, and returns them.
func (b *both) agree(what string) (memory, file data.RowSnapshot) {
	b.t.Helper()
	if b.memory.Changed() != b.file.Changed() {
		b.t.Errorf("%s: changed: %v in memory, %v in a file", what, b.memory.Changed(), b.file.Changed())
	}
	m, err := b.memory.Snapshot()
	f, ferr := b.file.Snapshot()
	if fmt.Sprint(err) != fmt.Sprint(ferr) {
		b.t.Fatalf("%s: %v in memory, %v in a file", what, err, ferr)
	}
	if err != nil {
		return m, f
	}
	b.same(what, m, f)
	return m, f
}

func (b *both) same(what string, m, f data.RowSnapshot) {
	b.t.Helper()
	if m.Version != f.Version || m.ReplacementReason != f.ReplacementReason || m.TargetDelay != f.TargetDelay ||
		f.Err() != nil {
		b.t.Errorf("%s: %+v in memory, %+v in a file, which has %v", what, m, f, f.Err())
	}
	x, y := elements(m.Rows)
	fx, fy := elements(f.Rows)
	if !slices.Equal(x, fx) || !slices.Equal(y, fy) || !slices.Equal(timesOf(m), timesOf(f)) {
		b.t.Errorf("%s: %d rows in memory and %d in a file are not the same", what, len(y), len(fy))
	}
}

// csvRowsOf returns CSV rows with the columns t, x, z and y. The row numbers are from to to − 1.
func csvRowsOf(from, to int, seed uint64) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		fmt.Fprintf(&b, "%d,%.3f,%.5g,%.2f\n", 60*i, rng.NormFloat64(), 100*rng.Float64(), rng.NormFloat64())
	}
	return b.String()
}

const rowsHeader = "t,x,z,y\n"

// TestFileEqualsMemory checks that rows stored in a file are bit-identical to rows in memory, for all kinds of changes
// of the CSV file.
func TestFileEqualsMemory(t *testing.T) {
	st := learner.Standardization{Mean: []float64{0.1, 50, 0.2}, Scale: []float64{1.1, 29, 0.9}, Clip: 1}
	recipe := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Minute}, Inputs: []spec.InputSeries{{Name: "x"},
		{Name: "z"},
		{Name: "y"}}}.WithDefaults()
	columns := data.RowQuery{Features: []string{"x", "z"}, Target: "y", Preparer: scaled{st}}
	readings := data.RowQuery{Features: []string{"x", "z mean 3m"}, Target: "y in 2m", Recipe: &recipe,
		Preparer: scaled{st}}
	for _, name := range []string{"d.csv", "d.csv.gz"} {
		for what, w := range map[string]data.RowQuery{"columns": columns, "readings": readings} {
			t.Run(what+" of "+name, func(t *testing.T) {
				b := followBoth(t, name, rowsHeader+csvRowsOf(0, 90, 1), w, data.Config{TimeColumn: "t",
					MissingValuePolicy: "skip"})
				few, fewFile := b.agree("few")
				if file(b.file) != nil {
					t.Fatal("few rows are in a file")
				}
				b.set(rowsHeader + csvRowsOf(0, 3000, 1))
				many, manyFile := b.agree("many")
				if file(b.file) == nil || file(b.memory) != nil {
					t.Fatal("many rows are not in a file, or in one with room in memory")
				}
				b.set(rowsHeader + csvRowsOf(0, 4000, 1))
				b.agree("more")
				b.set(rowsHeader + csvRowsOf(0, 4000, 1) + "240000,1,1\n")
				b.agree("a bad line")
				b.set(rowsHeader + csvRowsOf(0, 4500, 1))
				b.agree("mended")
				b.set(rowsHeader + csvRowsOf(0, 4500, 1) + "270000,1,1,5000\n270060,1,1,1\n270120,1,1,1\n" +
					"270180,1,1,1\n")
				b.agree("a target that is refused")
				b.set(rowsHeader + csvRowsOf(0, 4600, 1))
				b.agree("and mended")
				b.set(rowsHeader + csvRowsOf(0, 2000, 2))
				if v, _ := b.agree("other rows"); v.ReplacementReason == "" {
					t.Error("it is not said that rows are gone")
				}
				b.same("the first view", few, fewFile)
				b.same("the second view", many, manyFile)
				b.set(rowsHeader + csvRowsOf(0, 50, 2))
				b.agree("few again")
			})
		}
	}
}

// file returns the file of the rows; nil if they are in memory.
func file(r data.QueriedRows) *rows.RowFile { return r.(*rows.TaskRows).Shared.Raw.File }

// manyRows returns a harness with rows in a file.
func manyRows(t *testing.T) *both {
	t.Helper()
	w := data.RowQuery{Features: []string{"x", "z"}, Target: "y"}
	b := followBoth(t, "d.csv", rowsHeader+csvRowsOf(0, 2000, 1), w, data.Config{TimeColumn: "t"})
	b.agree("many rows")
	return b
}

// TestRowsAreShared checks that several tasks share their rows without reading the lines again, and that rows are
// released when no task uses them.
func TestRowsAreShared(t *testing.T) {
	b := manyRows(t)
	s := textOf(b.file).csvFile
	b.put(t, rowsHeader+csvRowsOf(0, 2100, 1))
	memory, _ := b.agree("grown")
	st := learner.Standardization{Mean: []float64{1, 2, 3}, Scale: []float64{1, 1, 2}}
	w := data.RowQuery{Features: []string{"x", "z"}, Target: "y", Preparer: scaled{st}}
	other := s.OpenRows(w)
	if other.(*rows.TaskRows).Shared != b.file.(*rows.TaskRows).Shared {
		t.Error("the same rows are made twice")
	}
	v, err := other.Snapshot()
	if err != nil || v.Version != 1 || v.Rows.Len() != 2100 || v.ReplacementReason != "" || other.Changed() ||
		b.file.Changed() {
		t.Errorf("%+v, %v", v, err)
	}
	_, y := memory.Rows.Row(7)
	if _, got := v.Rows.Row(7); got != (y-3)/2 {
		t.Errorf("target %v, want %v", got, (y-3)/2)
	}
	b.put(t, rowsHeader+csvRowsOf(0, 2200, 1))
	if v, err = other.Snapshot(); err != nil || v.Version != 2 || v.Rows.Len() != 2200 || !b.file.Changed() {
		t.Errorf("%+v, %v", v, err)
	}
	b.agree("found by the other one")
	w.Target = "t"
	if s.OpenRows(w).(*rows.TaskRows).Shared == b.file.(*rows.TaskRows).Shared {
		t.Error("other rows are shared")
	}
	v, other, b.file = data.RowSnapshot{}, nil, nil
	runtime.GC()
	runtime.GC()
	w.Target = "y"
	if s.OpenRows(w).(*rows.TaskRows).Shared.Raw.Len() != 0 || len(s.sharedRowsByKey) != 1 {
		t.Errorf("rows that nobody wants are kept: %v", s.sharedRowsByKey)
	}
}

// TestRowsThatCannotBeRead checks that a snapshot reports errors of reading stored rows, and that the next snapshot
// contains the rows again.
func TestRowsThatCannotBeRead(t *testing.T) {
	for what, spoil := range map[string]func(f *os.File) error{
		"a disk that fails":      func(f *os.File) error { return f.Close() },
		"a file that is cut off": func(f *os.File) error { return f.Truncate(10_000) },
	} {
		b := manyRows(t)
		v, err := b.file.Snapshot()
		if err = errors.Join(err, v.Err(), spoil(file(b.file).File)); err != nil || b.file.Changed() {
			t.Fatal(err)
		}
		if x, y := v.Rows.Row(1999); !math.IsNaN(float64(x[0])) || y != 0 || v.Err() == nil {
			t.Errorf("%s: %v, %v; %v", what, x, y, v.Err())
		}
		if v.Times.At(1999) != 0 || !b.file.Changed() {
			t.Errorf("%s: a time, or nothing has changed", what)
		}
		again, err := b.file.Snapshot()
		if err != nil || again.Version != v.Version+1 || again.Err() != nil ||
			!strings.Contains(again.ReplacementReason, "cannot read the rows stored in ") {
			t.Fatalf("%s: %+v, %v", what, again, err)
		}
		memory, _ := b.memory.Snapshot()
		again.Version, again.ReplacementReason = memory.Version, ""
		b.same(what, memory, again)
	}
}

// TestNoRoomForRows checks the error for rows that cannot be stored. The error must name the folder and end when space
// is available. Data already read from a growing file must remain.
func TestNoRoomForRows(t *testing.T) {
	w := data.RowQuery{Features: []string{"x", "z"}, Target: "y"}
	recipe := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Minute}, Inputs: []spec.InputSeries{{Name: "x"},
		{Name: "z"},
		{Name: "y"}}}.WithDefaults()
	made := w
	made.Recipe, made.Target = &recipe, "y in 1m"
	for _, w := range []data.RowQuery{w, made} {
		b := followBoth(t, "d.csv", rowsHeader+csvRowsOf(0, 50, 1), w, data.Config{TimeColumn: "t"})
		b.agree("few rows")
		folder := filepath.Join(t.TempDir(), "state")
		b.file.(*rows.TaskRows).Shared.Raw.Folder = folder
		b.put(t, rowsHeader+csvRowsOf(0, 2000, 1))
		for range 2 {
			_, err := b.file.Snapshot()
			if err == nil || !strings.Contains(err.Error(), "cannot be stored in "+folder) {
				t.Errorf("without a folder: %v", err)
			}
		}
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		m, err := b.memory.Snapshot()
		f, ferr := b.file.Snapshot()
		if err = errors.Join(err, ferr); err != nil {
			t.Fatal(err)
		}
		if w.Recipe != nil {
			f.ReplacementReason = "" // the readings were read again
		}
		b.same("with a folder", m, f)
		if left, err := os.ReadDir(folder); runtime.GOOS != "windows" && (err != nil || len(left) > 0) {
			t.Errorf("%v, %v in the folder", left, err)
		}
	}
}

// TestFullDisk checks that stored rows leave some disk space free. Rows that do not fit must be removed, and must be
// added when space is available again.
func TestFullDisk(t *testing.T) {
	b := manyRows(t)
	f := file(b.file)
	if _, known := store.FreeDiskBytes(f.Folder); !known {
		t.Skip("this system does not tell the room on a disk")
	}
	size := func() int64 {
		info, err := f.File.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before, _ := b.file.Snapshot()
	was := size()
	b.put(t, rowsHeader+csvRowsOf(0, 40_000, 1)+strings.Repeat("x,x,x,x\n", 40_000))
	if _, err := b.file.Snapshot(); err == nil || size() != was {
		t.Errorf("after lines that are taken back: %d bytes, before %d; %v", size(), was, err)
	}
	f.MinFreeDisk = 1 << 60
	b.put(t, rowsHeader+csvRowsOf(0, 40_000, 1))
	if _, err := b.file.Snapshot(); err == nil || !strings.Contains(err.Error(), "MB must stay free: free some space") {
		t.Errorf("error %v", err)
	}
	if size() != was || before.Rows.Len() != 2000 || before.Err() != nil || b.file.Changed() {
		t.Errorf("%d bytes, before %d; %v", size(), was, before.Err())
	}
	f.MinFreeDisk = rows.MinFreeDiskBytes
	m, err := b.memory.Snapshot()
	v, ferr := b.file.Snapshot()
	if err = errors.Join(err, ferr); err != nil || file(b.file) != f {
		t.Fatalf("it is read again: %v", err)
	}
	b.same("with room", m, v)
}

// TestRowsAreReadWhileTheyGrow reads snapshots while rows are added concurrently, so that the race detector can find
// missing locks.
func TestRowsAreReadWhileTheyGrow(t *testing.T) {
	b := manyRows(t)
	v, err := b.file.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	x, y := elements(v.Rows)
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for range 20 {
				if gx, gy := elements(v.Rows); !slices.Equal(x, gx) || !slices.Equal(y, gy) {
					t.Error("a view has changed")
				}
			}
		})
	}
	for n := 2500; n < 8000; n += 500 {
		b.put(t, rowsHeader+csvRowsOf(0, n, 1))
		if v, err := b.file.Snapshot(); err != nil || v.Rows.Len() != n {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	readers.Wait()
}
