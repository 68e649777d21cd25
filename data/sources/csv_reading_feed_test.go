package sources

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/spec"
)

// TestCSVFeed checks that rows on a time grid are made from the lines of a file, in any order within the lateness, and
// that rows are added when the file grows.
func TestCSVFeed(t *testing.T) {
	recipe := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Minute, Lateness: time.Minute}, Inputs: []spec.InputSeries{
		{Name: "a", ValidRange: []float64{0, 100}}, {Name: "wd", Classes: []string{"N", "S"}}, {Name: "elsewhere"},
	}}.WithDefaults()
	h := &csvHarness{path: filepath.Join(t.TempDir(), "d.csv")}
	s, err := Open(&data.Config{CSVPath: h.path, TimeColumn: "t", ColumnByInput: map[string]string{"a": "A (°C)"},
		MissingValuePolicy: grid.FillLast,
		MaxLastValueAge:    time.Minute, MaxUnusableShare: 0.4})
	if err != nil {
		t.Fatal(err)
	}
	want := data.RowQuery{Features: []string{"a", "a lag 1m", "wd = N"}, Target: "a in 1m", Recipe: &recipe}
	r := s.OpenRows(want)
	h.put(t, "t,wd,A (°C)\n60,N,1\n120,S,3\n90,S,5\n180,N,NA\n240,N,7\n300,S,9\n360,S,200\n420,N,2\n")
	v, err := r.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	// The grid points are 60, 120 (mean of 3 and 5), 180 (filled), 240 and 300. Targets are never filled.
	wantX, wantY := []float32{4, 4, 1, 7, 4, 1}, []float32{7, 9}
	if b := v.Rows.All(); !slices.Equal(b.X, wantX) || !slices.Equal(b.Y, wantY) {
		t.Errorf("%v, %v at %v; want %v, %v", b.X, b.Y, timesOf(v), wantX, wantY)
	}
	if !slices.Equal(timesOf(v), []int64{180e9, 240e9}) || r.Changed() {
		t.Errorf("times %v", timesOf(v))
	}
	h.put(t, h.content()+"480,N,4\n540,N,1\n600,N,1\n")
	grown, err := r.Snapshot()
	if err != nil || grown.Rows.Len() <= v.Rows.Len() || grown.ReplacementReason != "" {
		t.Errorf("grown: %+v, %v", grown, err)
	}
	// Reading the file at once yields the same rows.
	again, err := s.OpenRows(want).Snapshot()
	if err != nil || !slices.Equal(again.Rows.All().X, grown.Rows.All().X) ||
		!slices.Equal(timesOf(again), timesOf(grown)) {
		t.Errorf("at once %+v, grown %+v, %v", again, grown, err)
	}
	said := r.(data.QualityReporter).QualityReport()
	if got, want := said.String(), "a: 7 used, 2 gap, 1 missing, 1 out_of_range; wd: 9 used; elsewhere: 0 used"; got !=
		want || !strings.HasSuffix(said.Columns[0].LastUnusedWhere, "d.csv: line 8") || said.BadRows != 2 ||
		said.Rows != grown.Rows.Len() {
		t.Errorf("%s\nwant %s; %+v", got, want, said)
	}
}

// TestCSVFeedBeginsAgain checks that all readings are passed on again after the file was rewritten or could not be
// read.
func TestCSVFeedBeginsAgain(t *testing.T) {
	recipe := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Minute},
		Inputs: []spec.InputSeries{{Name: "x"}}}.WithDefaults()
	want := data.RowQuery{Features: []string{"x"}, Target: "x in 1m", Recipe: &recipe}
	h := &csvHarness{path: filepath.Join(t.TempDir(), "d.csv")}
	s, err := Open(&data.Config{CSVPath: h.path, TimeColumn: "t"})
	if err != nil {
		t.Fatal(err)
	}
	r := s.OpenRows(want)
	for _, step := range []struct {
		text, problem string
		want          []float32
		renewed       bool
	}{
		{"t,x\n60,1\n120,2\n180,3\n240,4\n", "", []float32{1, 2}, false},
		{"t,x\n60,1\n120,2\n180,3\n240,4\n300,5,5\n", "", []float32{1, 2}, false},
		{"t,x\n60,1\n120,2\n180,3\n240,4\n300,5\n", "", []float32{1, 2, 3}, false},
		{"t,x\n60,9\n120,8\n180,7\n240,6\n", "", []float32{9, 8}, true},
		{"t,x\n60,9\n120,8\n180,7\n240,6\n300,a\n360,b\n", `line 7: column "x": not_a_number; 2 of 5 values`, nil, false},
		{"time,x\n60,9\n", `column "t": this column is missing`, nil, false},
		{"t,y\n60,9\n", `the file contains none of the task's inputs`, nil, false},
	} {
		h.put(t, step.text)
		v, err := r.Snapshot()
		switch {
		case step.problem != "":
			if err == nil || !strings.Contains(err.Error(), step.problem) {
				t.Errorf("%q: error %v, want %s", step.text, err, step.problem)
			}
		case err != nil:
			t.Errorf("%q: %v", step.text, err)
		case !slices.Equal(v.Rows.All().X, step.want) || (v.ReplacementReason != "") != step.renewed:
			t.Errorf("%q: %v, renewed %q; want %v", step.text, v.Rows.All().X, v.ReplacementReason, step.want)
		}
	}
	if r.Changed() {
		t.Error("nothing has changed")
	}
	none, err := Open(&data.Config{CSVPath: h.path})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := none.OpenRows(want).Snapshot(); err == nil || !strings.Contains(err.Error(), "data.time") {
		t.Errorf("without a time: %v", err)
	}
	h.put(t, "x in 1m,x\n2,1\n3,2\n")
	v, err := none.OpenRows(want).Snapshot()
	if err != nil || !slices.Equal(v.Rows.All().X, []float32{1, 2}) || !slices.Equal(v.Rows.All().Y, []float32{2, 3}) {
		t.Errorf("rows that were made: %+v, %v", v, err)
	}
}

// TestRewindIsAChange checks that Changed returns true after Rewind.
func TestRewindIsAChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(path, []byte("t,x\n60,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &csvReadingFeed{csvFile: &csvFile{path: path}, fileFollower: fileFollower{path: path, now: time.Now}}
	f.updateStamps()
	before := f.Changed()
	f.Rewind("the rows could not be stored")
	if before || !f.Changed() {
		t.Errorf("changed: %v, and after rewind %v", before, f.Changed())
	}
}
