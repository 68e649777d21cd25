package sources

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/rows"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// harness runs a source under test and writes its data. Rows have the columns a and b, and the target y.
type harness interface {
	config() data.Config
	add(t *testing.T, rows ...[3]float32)
	// damage makes the data unreadable, and mend makes them readable again.
	damage(t *testing.T)
	mend(t *testing.T)
	// renew replaces all rows.
	renew(t *testing.T, rows ...[3]float32)
}

// harnesses contains a harness for each kind of source that does not collect readings.
var harnesses = map[data.SourceKind]func(t *testing.T) harness{
	data.SourceCSV: func(t *testing.T) harness { return &csvHarness{path: filepath.Join(t.TempDir(), "rows.csv")} },
}

// TestSources runs the conformance tests for every kind of source.
func TestSources(t *testing.T) {
	tried := slices.Concat(slices.Collect(maps.Keys(harnesses)), slices.Collect(maps.Keys(streamHarnesses)))
	if a, b := slices.Sorted(maps.Keys(sourceDrivers)), slices.Sorted(slices.Values(tried)); !slices.Equal(a, b) {
		t.Fatalf("the table has %q, the suite %q", a, b)
	}
	for kind, h := range harnesses {
		t.Run(string(kind), func(t *testing.T) { suite(t, h) })
	}
	for kind, h := range streamHarnesses {
		t.Run(string(kind), func(t *testing.T) { streamSuite(t, h) })
	}
}

// filed is a harness whose rows do not fit into memory, so that they are stored in a file.
type filed struct {
	*csvHarness
	folder string
}

// TestSourcesInFiles runs the conformance tests with rows that are stored in files.
func TestSourcesInFiles(t *testing.T) {
	suite(t, func(t *testing.T) harness {
		return filed{&csvHarness{path: filepath.Join(t.TempDir(), "rows.csv")}, t.TempDir()}
	})
}

func suite(t *testing.T, make func(t *testing.T) harness) {
	for _, tt := range []struct {
		name  string
		check func(t *testing.T, h harness)
	}{
		{"a section that says nothing", refusesAnEmptySection},
		{"nothing yet", waitsForRows},
		{"growth", followsGrowth},
		{"renewal", followsRenewal},
		{"damage", tellsDamage},
		{"rows that are refused", retriesRefusedRows},
		{"two tasks", servesTwoTasks},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.check(t, make(t)) })
	}
}

// Rows that the conformance tests write.
var rowOne, rowTwo, rowThree = [3]float32{1, 2, 3}, [3]float32{-1, 0.5, 7}, [3]float32{4, 4, -4}

func refusesAnEmptySection(t *testing.T, h harness) {
	c := data.Config{Source: h.config().Source}
	var problems spec.ProblemList
	if CheckConfig(&c, &problems, "data"); problems.Err() == nil {
		t.Error("it has no problem")
	}
}

func waitsForRows(t *testing.T, h harness) {
	f := follow(t, h)
	if err := f.source.Probe(); err == nil {
		t.Error("there is something to read")
	}
	if v, err := f.rows.Snapshot(); err == nil {
		t.Errorf("a view %+v", v)
	}
	f.add(t, rowOne)
	f.changed(true)
	f.wants(1, rowOne)
	if err := f.source.Probe(); err != nil {
		t.Error(err)
	}
}

func followsGrowth(t *testing.T, h harness) {
	h.add(t, rowOne)
	f := follow(t, h)
	first := f.wants(1, rowOne)
	f.changed(false)
	f.wants(1, rowOne)
	f.add(t, rowTwo, rowThree)
	f.changed(true)
	f.wants(2, rowOne, rowTwo, rowThree)
	f.changed(false)
	if f.batches != 2 || f.prepared != 3 {
		t.Errorf("%d rows were prepared in %d batches; want each of 3 once, in 2", f.prepared, f.batches)
	}
	if first.Rows.Len() != 1 || row(first.Rows, 0) != rowOne {
		t.Errorf("the first view became %v", first.Rows)
	}
}

func followsRenewal(t *testing.T, h harness) {
	h.add(t, rowOne, rowTwo)
	f := follow(t, h)
	first := f.wants(1, rowOne, rowTwo)
	f.renew(t, rowThree)
	f.changed(true)
	if v := f.wants(2, rowThree); v.ReplacementReason == "" {
		t.Error("it is not said that rows are gone")
	}
	f.add(t, rowTwo)
	if v := f.wants(3, rowThree, rowTwo); v.ReplacementReason != "" {
		t.Errorf("after rows were added: %s", v.ReplacementReason)
	}
	if first.Rows.Len() != 2 || row(first.Rows, 1) != rowTwo {
		t.Errorf("the first view became %v", first.Rows)
	}
}

func tellsDamage(t *testing.T, h harness) {
	h.add(t, rowOne)
	f := follow(t, h)
	f.wants(1, rowOne)
	f.damage(t)
	f.changed(true)
	for range 2 {
		_, err := f.rows.Snapshot()
		where := (*data.FileError)(nil)
		if !errors.As(err, &where) || where.File == "" || where.Line == 0 || where.Problem == "" {
			t.Errorf("the error %v does not say where", err)
		}
		f.changed(false)
	}
	f.mend(t)
	f.add(t, rowTwo)
	f.changed(true)
	if v, err := f.rows.Snapshot(); err != nil || v.Rows.Len() != 2 || row(v.Rows, 1) != rowTwo {
		t.Errorf("mended: %+v, %v", v, err)
	}
}

func retriesRefusedRows(t *testing.T, h harness) {
	h.add(t, rowOne)
	f := follow(t, h)
	f.wants(1, rowOne)
	f.add(t, rowTwo)
	f.refuse = errors.New("no such label")
	if _, err := f.rows.Snapshot(); !errors.Is(err, f.refuse) {
		t.Errorf("error %v", err)
	}
	f.refuse = nil
	f.wants(2, rowOne, rowTwo)
}

func servesTwoTasks(t *testing.T, h harness) {
	h.add(t, rowOne, rowTwo)
	f := follow(t, h)
	f.wants(1, rowOne, rowTwo)
	v, err := f.source.OpenRows(data.RowQuery{Features: []string{"b"}, Target: "a"}).Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if x, y := elements(v.Rows); !slices.Equal(x, []float32{2, 0.5}) || !slices.Equal(y, []float32{1, -1}) {
		t.Errorf("b and a: %v, %v", x, y)
	}
	f.wants(1, rowOne, rowTwo)
}

// elements returns the features and targets of rows.
func elements(s *learner.Samples[float32]) (x, y []float32) {
	all := s.All()
	for from := 0; from < s.Len(); from += 100 {
		b := all.RowRange(from, 100)
		x, y = append(x, b.X...), append(y, b.Y...)
	}
	return x, y
}

// timesOf returns the times of the rows of a snapshot.
func timesOf(v data.RowSnapshot) []int64 {
	if v.Times == nil {
		return nil
	}
	all := make([]int64, v.Times.Len())
	v.Times.CopyTo(all, 0)
	return all
}

// textOf returns the row maker of a CSV file.
func textOf(r data.QueriedRows) *csvRowMaker { return r.(*rows.TaskRows).Shared.Maker.(*csvRowMaker) }

// followed is a source with opened rows. It records the calls of its preparer.
type followed struct {
	harness
	t                 *testing.T
	source            data.Source
	rows              data.QueriedRows
	batches, prepared int
	refuse            error
}

func follow(t *testing.T, h harness) *followed {
	t.Helper()
	f, c := &followed{harness: h, t: t}, h.config()
	var problems spec.ProblemList
	CheckConfig(&c, &problems, "data")
	source, err := Open(&c)
	if err = errors.Join(problems.Err(), err); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := source.Close(); err != nil {
			t.Error(err)
		}
	})
	if h, ok := h.(filed); ok {
		source.(*csvFile).rowStorage = rows.StorageSettings{Folder: h.folder}
	}
	f.source = source
	f.rows = source.OpenRows(data.RowQuery{Features: []string{"a", "b"}, Target: "y", Preparer: f})
	return f
}

// PrepareSamples implements data.RowPreparer. It multiplies targets by ten, so that a row prepared twice is detected.
func (f *followed) PrepareSamples(s *learner.Samples[float32], first bool) error {
	if f.batches++; first {
		f.prepared = 0
	}
	b := s.All()
	if f.PrepareRowsAgain(b.X, b.Y); f.refuse == nil {
		f.prepared += s.Len()
	}
	return f.refuse
}

// PrepareRowsAgain implements data.RowPreparer.
func (*followed) PrepareRowsAgain(_, y []float32) {
	for i := range y {
		y[i] *= 10
	}
}

func (f *followed) changed(want bool) {
	f.t.Helper()
	if got := f.rows.Changed(); got != want {
		f.t.Errorf("changed: %v, want %v", got, want)
	}
}

// wants takes a snapshot and checks its version and rows.
func (f *followed) wants(version uint64, rows ...[3]float32) data.RowSnapshot {
	f.t.Helper()
	v, err := f.rows.Snapshot()
	if err != nil {
		f.t.Fatal(err)
	}
	var got [][3]float32
	for i := range v.Rows.Len() {
		got = append(got, row(v.Rows, i))
	}
	if v.Version != version || !slices.Equal(got, rows) || f.prepared != len(rows) {
		f.t.Errorf("version %d of %v, of which %d prepared; want version %d of %v", v.Version, got, f.prepared, version,
			rows)
	}
	return v
}

func row(s *learner.Samples[float32], i int) [3]float32 {
	x, y := s.Row(i)
	return [3]float32{x[0], x[1], y / 10}
}

// csvHarness is a harness that writes a CSV file.
type csvHarness struct {
	path  string
	sound string // content of the file before it was damaged
}

func (h *csvHarness) config() data.Config {
	return data.Config{Source: data.SourceCSV, CSVPath: h.path}
}

func (h *csvHarness) add(t *testing.T, rows ...[3]float32) {
	t.Helper()
	text := h.content()
	if text == "" {
		text = csvHeader
	}
	h.put(t, text+csvLines(rows))
}

const csvHeader = "b,note,y,a\n"

func csvLines(rows [][3]float32) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%g,x,%g,%g\n", r[1], r[2], r[0])
	}
	return b.String()
}

func (h *csvHarness) content() string {
	text, _ := os.ReadFile(h.path) // text is empty if the file is missing
	return string(text)
}

// put writes the file in place and gives it a unique modification time, because two writes within one tick of the file
// system's clock could not be distinguished.
func (h *csvHarness) put(t *testing.T, text string) {
	t.Helper()
	at := time.Now()
	if info, err := os.Stat(h.path); err == nil {
		at = info.ModTime().Add(time.Second)
	}
	if err := errors.Join(os.WriteFile(h.path, []byte(text), 0o600), os.Chtimes(h.path, at, at)); err != nil {
		t.Fatal(err)
	}
}

func (h *csvHarness) damage(t *testing.T) {
	h.sound = h.content()
	h.put(t, strings.ReplaceAll(h.sound, ",", ";")+"1,2\n")
}

func (h *csvHarness) mend(t *testing.T) { h.put(t, h.sound) }

func (h *csvHarness) renew(t *testing.T, rows ...[3]float32) { h.put(t, csvHeader+csvLines(rows)) }
