package rows

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// fakeFeed is a feed of readings that a test appends.
type fakeFeed struct {
	all  []data.Reading
	read int
	gone string // reason why the feed must deliver its readings again from the first one
	err  error
	data.AtomicQualityReport
}

type fedBy struct{ *fakeFeed }

func (f fedBy) QualityReport() data.QualityReport { return f.AtomicQualityReport.QualityReport() }

func (fedBy) DescribeReadingPlace(input string, line int64) string {
	if line > 0 {
		return fmt.Sprintf("f.csv: line %d", line)
	}
	return "from topic site/" + input
}

func (f fedBy) Changed() bool { return f.read < len(f.all) || f.gone != "" }

func (f fedBy) Read(void func(string), take func(data.Reading) bool) error {
	if f.gone != "" {
		void(f.gone)
		f.gone, f.read = "", 0
	}
	for i, r := range f.all[f.read:] {
		r.SequenceNumber = uint64(f.read + i)
		take(r)
	}
	f.read = len(f.all)
	return f.err
}

// hours appends hourly readings of the input x to the feed. The value at hour k is k + by.
func (f *fakeFeed) hours(from, to int, by float64) {
	for k := from; k < to; k++ {
		f.all = append(f.all, data.Reading{Input: "x", Time: int64(k) * int64(time.Hour), Value: float64(k) + by})
	}
}

// hourly returns a query for rows with the value of each hour as feature and the value four hours later as target.
func hourly() data.RowQuery {
	r := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Hour}, Inputs: []spec.InputSeries{{Name: "x"}}}.WithDefaults()
	return data.RowQuery{Features: []string{"x", "x mean 3h"}, Target: "x in 4h", Recipe: &r}
}

func (f fedBy) Rewind(why string) { f.gone = why }

// gridRowsOf returns the rows made from a feed.
func gridRowsOf(f *fakeFeed, w data.RowQuery, fill grid.FillRule) data.QueriedRows {
	var s SharedRowsCache
	return s.OpenTaskRows(w, func() *SharedRows {
		return NewRowsFromReadings(fedBy{f}, w, ValueRules{MissingFill: fill, MaxWrongShare: 0.2, Now: time.Now},
			StorageSettings{MaxMemoryBytes: maxRowMemory}, silent)
	})
}

// prepareFunc is a RowPreparer for rows in memory.
type prepareFunc func(fresh *learner.Samples[float32], first bool) error

func (f prepareFunc) PrepareSamples(fresh *learner.Samples[float32], first bool) error {
	return f(fresh, first)
}

func (prepareFunc) PrepareRowsAgain([]float32, []float32) {
	panic("rows in memory were read from a file")
}

// TestGridRowsReport checks that the report combines the counts of the feed and of the grid.
func TestGridRowsReport(t *testing.T) {
	f, w := &fakeFeed{}, hourly()
	w.Recipe.Inputs[0].ValidRange = []float64{0, 50}
	r := gridRowsOf(f, w, grid.FillRule{})
	f.SetQualityReport(data.QualityReport{Columns: []data.ColumnReport{{Name: "x", Used: 99, NewestTime: 1,
		LastUnusedWhere: "site/x",
		Unused:          map[data.UnusedReason]uint64{grid.ReasonMissing: 2, grid.ReasonNotANumber: 1}}},
		Troubles: []data.SourceTrouble{{Kind: data.TroubleSilent,
			Text: "quiet"}}})
	if got := r.(data.QualityReporter).QualityReport(); got.Columns[0].LastUnusedWhere != "site/x" ||
		got.Columns[0].Used != 99 {
		t.Errorf("before anything was read: %+v", got)
	}
	f.hours(0, 10, 0)
	f.all[5].Value = 60
	f.hours(9, 10, 0) // duplicates of earlier readings
	f.hours(10, 12, 0)
	v, err := r.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	got := r.(data.QualityReporter).QualityReport()
	c := got.Columns[0]
	if s := c.String(); s != "10 used, 2 missing, 1 not_a_number, 1 out_of_range, 1 twice" ||
		c.LastUnusedWhere != "from topic site/x at 1970-01-01T09:00:00Z" || c.NewestTime != 11*int64(time.Hour) ||
		got.Rows != v.Rows.Len() || got.BadRows != 0 || len(got.Troubles) != 1 {
		t.Errorf("%s, %+v", s, got)
	}
	f.all, f.gone = []data.Reading{{Input: "x", Time: 1, Value: 51, Line: 7}}, "another file"
	_, err = r.Snapshot()
	if err == nil || !strings.HasSuffix(err.Error(),
		"nothing has come; x: 0 used, 2 missing, 1 not_a_number, 1 out_of_range") {
		t.Errorf("without rows: %v", err)
	}
	if c := r.(data.QualityReporter).QualityReport().Columns[0]; c.LastUnusedWhere != "f.csv: line 7" {
		t.Errorf("%+v", c)
	}
}

// TestGridMaxBad checks that rows are refused while an input has too many wrong values. The error must contain the
// input, the reason, the place and the counts. Missing values are not counted as wrong, and rows for predictions are
// still made.
func TestGridMaxBad(t *testing.T) {
	hour := int64(time.Hour)
	r := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Hour}, Inputs: []spec.InputSeries{{Name: "x",
		ValidRange: []float64{0, 50}},
		{Name: "y", ValidRange: []float64{0, 50}}, {Name: "z", ValidRange: []float64{0, 50}}}}.WithDefaults()
	f := &fakeFeed{}
	w := data.RowQuery{Features: []string{"x"}, Target: "y in 1h", Recipe: &r}
	rows := gridRowsOf(f, w, grid.FillRule{})
	w.IsForPrediction = true
	g := &fakeFeed{}
	early := gridRowsOf(g, w, grid.FillRule{})
	k := int64(0)
	add := func(n int, x, y float64) { // a value that is NaN is not added
		for range n {
			k++
			for i, v := range []float64{x, y, 99} { // the input z is always out of its range, but no column needs it
				r := data.Reading{Input: "xyz"[i : i+1], Time: k * hour, Value: v, Line: k + 1}
				if v == v {
					f.all = append(f.all, r)
					g.all = append(g.all, r)
				}
			}
		}
	}
	wants := func(want *data.FileError, share float64) {
		t.Helper()
		v, err := rows.Snapshot()
		var e *data.FileError
		switch errors.As(err, &e); {
		case want == nil && (err != nil || v.Rows.Len() == 0):
			t.Errorf("error %v", err)
		case want != nil && (e == nil || e.Column != want.Column || e.ReasonCode != want.ReasonCode ||
			e.BadCount != want.BadCount ||
			e.TotalCount != want.TotalCount || !strings.HasPrefix(e.Where(), want.File)):
			t.Errorf("error %+v, want %+v", err, want)
		}
		if got := rows.(data.QualityReporter).QualityReport().LargestWrongShare; math.Abs(got-share) > 1e-9 {
			t.Errorf("a share of %v, want %v", got, share)
		}
		if v, err := early.Snapshot(); (err != nil || v.Rows.Len() == 0) && k > 3 {
			t.Errorf("early: %v", err)
		}
	}
	add(3, math.NaN(), 1)
	wants(&data.FileError{Column: "x", ReasonCode: "silent"}, 0)
	add(3, 1, 1)
	wants(nil, 0) // three of four rows lack a value of x
	add(17, 1, 1)
	add(5, 99, 1)
	wants(nil, 5./25)
	add(1, 99, 1)
	wants(&data.FileError{File: "f.csv: line 30", Column: "x", ReasonCode: "out_of_range", BadCount: 6, TotalCount: 26},
		6./26)
	add(5, 1, 1)
	wants(nil, 6./30) // one of the readings is still queued
	add(1000, 99, 1)
	add(158, 1, 1)
	_, err := rows.Snapshot()
	if e := (*data.FileError)(nil); !errors.As(err, &e) || e.BadCount != 1006 {
		t.Errorf("soon after many that are wrong: %v", err)
	}
	add(4, 1, 1)
	if v, err := rows.Snapshot(); err != nil || v.Rows.Len() < 161 {
		t.Errorf("later: %v", err)
	}
}

func silent() error { return errors.New("nothing has come") }

func TestGridRows(t *testing.T) {
	f, fail := &fakeFeed{}, error(nil)
	var firsts []bool
	w := hourly()
	w.Preparer = prepareFunc(func(s *learner.Samples[float32], first bool) error {
		firsts = append(firsts, first)
		for i := range s.Len() {
			x, _ := s.Row(i)
			x[0] *= 10
		}
		return fail
	})
	r := gridRowsOf(f, w, grid.FillRule{})
	if _, err := r.Snapshot(); err == nil || !strings.Contains(err.Error(), "nothing has come; x: 0 used") {
		t.Errorf("of nothing: %v", err)
	}
	f.hours(0, 10, 0)
	fail = errors.New("labels")
	if _, err := r.Snapshot(); !errors.Is(err, fail) || !r.Changed() {
		t.Errorf("rows that Prepare refuses: %v", err)
	}
	fail = nil
	view := func(version uint64, xs ...float32) data.RowSnapshot {
		t.Helper()
		v, err := r.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		var got []float32
		for i := range v.Rows.Len() {
			x, _ := v.Rows.Row(i)
			got = append(got, x[0])
		}
		if v.Version != version || !slices.Equal(got, xs) || v.Times.Len() != len(xs) || r.Changed() {
			t.Errorf("view %d of %v, times %v; want %d of %v", v.Version, got, rowTimes(v), version, xs)
		}
		return v
	}
	// Row 2 is the first row whose window is complete. Row 4 is the last row with a target, because reading 9 may still
	// change.
	first := view(1, 20, 30, 40)
	view(1, 20, 30, 40)
	f.hours(10, 11, 0)
	view(2, 20, 30, 40, 50)
	f.all, f.gone = nil, "another file"
	f.hours(0, 9, 1)
	if v := view(3, 30, 40); v.ReplacementReason != "another file" {
		t.Errorf("renewed: %q", v.ReplacementReason)
	}
	if x, _ := first.Rows.Row(0); x[0] != 20 || first.Rows.Len() != 3 {
		t.Error("the first view has changed")
	}
	if want := []bool{true, true, false, true}; !slices.Equal(firsts, want) {
		t.Errorf("Prepare was called with first %v, want %v", firsts, want)
	}
	f.err = errors.New("the disk")
	if _, err := r.Snapshot(); !errors.Is(err, f.err) {
		t.Errorf("a feed that fails: %v", err)
	}
}

// TestNoHeldOutReadingIsTrainedOn checks that no training row changes if every reading of the held-out rows changes. It
// also checks that the test detects an error: without the gap before the boundary, some rows must change.
func TestNoHeldOutReadingIsTrainedOn(t *testing.T) {
	f := &fakeFeed{}
	f.hours(0, 60, 0)
	v, err := gridRowsOf(f, hourly(), grid.FillRule{}).Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	b := v.HeldOutBoundary(0.3)
	trained, held := v.SplitHeldOut(b)
	if trained.Len() != v.Rows.Len()-held.Len()-4 || held.Len() != 15 {
		t.Errorf("of %d rows %d are trained on and %d held out", v.Rows.Len(), trained.Len(), held.Len())
	}
	leaking := v
	leaking.TargetDelay = 0
	leaked, _ := leaking.SplitHeldOut(b)

	for i := range f.all {
		if f.all[i].Time > b.Time.Add(-time.Hour).UnixNano() { // from the first held-out grid point on
			f.all[i].Value = -1
		}
	}
	f.read = 0
	other, err := gridRowsOf(f, hourly(), grid.FillRule{}).Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if got := other.Rows.FirstSamples(trained.Len()); !slices.Equal(got.All().X, trained.All().X) ||
		!slices.Equal(got.All().Y, trained.All().Y) {
		t.Error("rows that are trained on have readings that are held out")
	}
	if got := other.Rows.FirstSamples(leaked.Len()); slices.Equal(got.All().Y, leaked.All().Y) {
		t.Error("the planted leak is not found")
	}
}

func TestGridRowsOfWhatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *data.RowQuery)
		want   string
	}{
		"a column without an input": {func(w *data.RowQuery) { w.Features[0] = "y" }, "unknown input y"},
		"a zone that is not there": {func(w *data.RowQuery) {
			w.Features[0], w.Recipe.Grid.TimeZone = "hour sin", "Mars/Olympus"
		}, "install the time zone database"},
		"a missing value": {func(*data.RowQuery) {}, "missing values are not allowed"},
	} {
		w, f := hourly(), &fakeFeed{}
		f.hours(0, 4, 0)
		f.hours(5, 20, 0)
		c.change(&w)
		r := gridRowsOf(f, w, grid.FillRule{Policy: grid.FillRefuse})
		if _, err := r.Snapshot(); !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEarlyRows checks that rows for predictions are made as soon as their hour is over, four hours before rows with a
// target, and that their features are equal.
func TestEarlyRows(t *testing.T) {
	f := &fakeFeed{}
	f.hours(0, 20, 0.5)
	w := hourly()
	late, err := gridRowsOf(f, w, grid.FillRule{}).Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	g := &fakeFeed{all: f.all}
	w.IsForPrediction = true
	early, err := gridRowsOf(g, w, grid.FillRule{}).Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if n := late.Rows.Len(); early.Rows.Len() != n+4 || !slices.Equal(rowTimes(early)[:n], rowTimes(late)) {
		t.Fatalf("%d early rows, %d late ones", early.Rows.Len(), n)
	}
	for i := range late.Rows.Len() {
		x, _ := early.Rows.Row(i)
		if y, _ := late.Rows.Row(i); !slices.Equal(x, y) {
			t.Errorf("row %d: %v, want %v", i, x, y)
		}
	}
}

// TestEarlyRowsAreFew checks that only the newest rows for predictions are kept, and that they are kept in memory.
func TestEarlyRowsAreFew(t *testing.T) {
	f := &fakeFeed{}
	w := hourly()
	w.IsForPrediction = true
	of := NewRowsFromReadings(fedBy{f}, w, ValueRules{MaxWrongShare: 0.2, Now: time.Now},
		StorageSettings{MaxMemoryBytes: 20_000}, silent)
	r := &TaskRows{Shared: of, query: w}
	for n := 10; n < 5000; n += 500 {
		f.hours(n-10, n+490, 0)
		v, err := r.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		last, _ := v.Rows.Row(v.Rows.Len() - 1)
		if v.Rows.Len() > 1000 || v.Rows.Len() < 490 || v.Times.Len() != v.Rows.Len() ||
			float64(v.Times.At(v.Times.Len()-1)) != float64(last[0])*float64(time.Hour) || of.Raw.File != nil {
			t.Errorf("%d rows, the last at %d with %v", v.Rows.Len(), v.Times.At(v.Times.Len()-1), last)
		}
	}
}

// rowTimes returns the times of the rows of a snapshot.
func rowTimes(v data.RowSnapshot) []int64 {
	all := make([]int64, v.Times.Len())
	v.Times.CopyTo(all, 0)
	return all
}

// TestOutliersOfAReplacedFile checks that the outliers found in a file are not applied to the file that replaces it.
func TestOutliersOfAReplacedFile(t *testing.T) {
	f := &fakeFeed{}
	f.hours(0, 30, 0)
	m := NewRowsFromReadings(fedBy{f}, hourly(), ValueRules{MaxWrongShare: 0.2, Now: time.Now},
		StorageSettings{MaxMemoryBytes: maxRowMemory}, silent)
	r := &TaskRows{Shared: m, query: hourly()}
	all, err := r.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	order := m.Maker.(*gridRowMaker).order
	order.FoundOutliers, order.Outliers = true, map[uint64]bool{9: true, 10: true, 11: true}
	f.gone = "another file"
	again, err := r.Snapshot()
	if err != nil || again.Rows.Len() != all.Rows.Len() {
		t.Errorf("%v rows of the same readings in another file, %v; want %d", again.Rows.Len(), err, all.Rows.Len())
	}
}

// TestPendingRows checks for which problems the error reports that further readings will solve the problem.
func TestPendingRows(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(*fakeFeed)
		pending bool
		want    string
	}{
		{"too short a span", func(*fakeFeed) {}, true, "a row requires readings that span at least 7h0m0s"},
		{"accepted readings that are not yet used", func(f *fakeFeed) {
			f.SetQualityReport(data.QualityReport{Columns: []data.ColumnReport{{Name: "x", Used: 1,
				NewestTime: time.Now().UnixNano()}}})
			f.all = nil
		}, true, "span only 0s"},
		{"wrong values", func(f *fakeFeed) {
			for i := range f.all {
				f.all[i].Value = 60
			}
		}, false, "out_of_range"},
		{"no readings", func(f *fakeFeed) { f.all = nil }, false, "no rows can be built yet"},
	} {
		f, w := &fakeFeed{}, hourly()
		w.Recipe.Inputs[0].ValidRange = []float64{0, 50}
		f.hours(500_000, 500_003, -500_000)
		tt.change(f)
		_, err := gridRowsOf(f, w, grid.FillRule{}).Snapshot()
		if e := (*data.FileError)(nil); !errors.As(err, &e) || e.IsPending != tt.pending ||
			!strings.Contains(e.Problem, tt.want) {
			t.Errorf("%s: error %+v, want %q and pending %t", tt.name, e, tt.want, tt.pending)
		}
	}
}

// TestUpdatedReport checks that UpdateQualityReport, which reads new data, hides no problem from the next snapshot.
func TestUpdatedReport(t *testing.T) {
	f, w := &fakeFeed{}, hourly()
	w.Recipe.Inputs[0].ValidRange = []float64{0, 50}
	r := gridRowsOf(f, w, grid.FillRule{})
	f.hours(500_000, 500_020, -500_000)
	if _, err := r.Snapshot(); err != nil || r.Changed() {
		t.Fatalf("changed %t, error %v", r.Changed(), err)
	}
	f.hours(500_020, 500_060, 0) // the readings are outside the valid range, so that they add no row
	r.(data.QualityUpdater).UpdateQualityReport()
	report := r.(data.QualityReporter).QualityReport()
	if n := report.Columns[0].Unused[grid.ReasonOutOfRange]; n != 40 {
		t.Errorf("the report counts %d wrong values, want 40", n)
	}
	if !r.Changed() {
		t.Error("the rows have not changed, although the wrong values exceed the permitted share")
	}
	if _, err := r.Snapshot(); err == nil || r.Changed() {
		t.Errorf("changed %t, error %v", r.Changed(), err)
	}
}
