package sources

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/rows"
	"github.com/fedmesh/fedmesh/data/survey"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
)

// airWant returns a query for rows made from readings of two inputs, one of them with classes.
func airWant() data.RowQuery {
	recipe := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Hour, Lateness: 10 * time.Minute},
		Inputs: []spec.InputSeries{
			{Name: "temp", Unit: "°C", ValidRange: []float64{-50, 60}}, {Name: "wd", Classes: []string{"N", "S"}},
			{Name: "unused"},
		}}.WithDefaults()
	return data.RowQuery{Features: []string{"temp", "wd = N"}, Target: "temp in 1h", Recipe: &recipe}
}

func storedAt(t *testing.T, c *data.Config, dir string) survey.StoredSource {
	t.Helper()
	s, err := OpenStoredSource(c, store.LocalDisk, dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// faultsOf returns the faults of a column with the given reason.
func faultsOf(s *survey.SourceSurvey, column string, why data.UnusedReason) survey.DataFaultGroup {
	for _, f := range s.Faults {
		if f.Column == column && f.Reason == why {
			return *f
		}
	}
	return survey.DataFaultGroup{}
}

// TestSurveyRing checks that the ring of a collector can be surveyed and made into rows while the collector is running.
func TestSurveyRing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "readings")
	c := &data.Config{Source: data.SourceMQTT}
	w := airWant()
	none := storedAt(t, c, dir).Survey(&w)
	if f := faultsOf(none, "",
		survey.ReasonNothingRecorded); f.Count != 1 || !strings.Contains(f.FirstFaults[0].Problem,
		"no readings recorded yet") {
		t.Errorf("no ring: %+v", none)
	}
	ring, _, err := store.LocalDisk.OpenRing(dir, store.RingLimits{MaxBytes: store.MinRingBytes})
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	var all []data.Reading
	for i := range int64(48) {
		at := rows.MinReadingTime + i*int64(time.Hour)
		all = append(all, data.Reading{Input: "temp", Time: at, Value: float64(i)},
			data.Reading{Input: "wd", Time: at, Text: []string{"N", "S"}[i%2]}, data.Reading{Input: "door", Time: at,
				Value: 1})
	}
	all = append(all, data.Reading{Input: "temp", Time: rows.MinReadingTime, Value: 1}, // this reading is late
		data.Reading{Input: "temp", Time: rows.MinReadingTime + 48*int64(time.Hour), Text: "warm"},
		data.Reading{Input: "wd", Time: rows.MinReadingTime + 48*int64(time.Hour), Text: "n"})
	if err := ring.Append(*encodeReadingBatch(all, ring)); err != nil {
		t.Fatal(err)
	}
	s := storedAt(t, c, dir).Survey(&w)
	if s.LineCount != len(all) || len(s.Columns) != 2 || s.Columns[0].Used != 48 || s.Columns[0].Unused != 2 ||
		s.Columns[0].Max != 47 || !slices.Equal(s.Columns[1].Histogram, []int{24, 24}) ||
		!slices.Equal(s.UnwantedColumns, []string{"door"}) || faultsOf(s, "temp", grid.ReasonLate).Count != 1 ||
		faultsOf(s, "temp", grid.ReasonNotANumber).Count != 1 || faultsOf(s, "wd", grid.ReasonUnknownClass).Count != 1 {
		t.Errorf("%+v", s)
		for _, f := range s.Faults {
			t.Errorf("%+v", *f)
		}
	}
	m, err := survey.DescribeRows(storedAt(t, c, dir), w)
	if err != nil || m.Snapshot.Rows.Len() != 46 || len(m.Columns) != 3 || m.Columns[0].Used != 46 {
		t.Errorf("%+v, %v", m, err)
	}
	s = storedAt(t, c, dir).Survey(nil)
	if len(s.Columns) != 3 || s.Columns[1].Name != "wd" || !slices.Equal(s.Columns[1].Texts, []string{"N", "S", "n"}) {
		t.Errorf("without a task: %+v", s)
	}
	w.Features = append(w.Features, "unused")
	if s := storedAt(t, c, dir).Survey(&w); faultsOf(s, "unused", survey.ReasonNoColumn).Count != 1 {
		t.Errorf("an input of which there is nothing: %+v", s)
	}
}

// deadFS is a file system on which reads fail while the disk is dead.
type deadFS struct {
	store.FS
	dead bool
}

func (d *deadFS) OpenFile(path string, flag int, perm fs.FileMode) (store.File, error) {
	f, err := d.FS.OpenFile(path, flag, perm)
	return deadFile{f, d}, err
}

type deadFile struct {
	store.File
	of *deadFS
}

func (f deadFile) ReadAt(p []byte, at int64) (int, error) {
	if f.of.dead && at > 100 { // the offset is in the first batch
		return 0, &fs.PathError{Op: "read", Path: f.Name(), Err: syscall.EIO}
	}
	return f.File.ReadAt(p, at)
}

// TestStoredDamage checks that the undamaged part of a ring is used and the damage is reported. If the disk cannot be
// read, an error must be returned, and all readings must be available after the disk has recovered.
func TestStoredDamage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "readings")
	ring, _, err := store.LocalDisk.OpenRing(dir, store.RingLimits{MaxBytes: store.MinRingBytes})
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	if err := ring.Append(store.RingBatch{EntryCount: 1, NewestEntryTime: rows.MinReadingTime,
		Body: []byte{7}}); err != nil { // the body contains no readings
		t.Fatal(err)
	}
	for from := range int64(2) {
		var all []data.Reading
		for i := from * 24; i < from*24+24; i++ {
			at := rows.MinReadingTime + i*int64(time.Hour)
			all = append(all, data.Reading{Input: "temp", Time: at, Value: float64(i)},
				data.Reading{Input: "wd", Time: at, Text: "N"})
		}
		if err := ring.Append(*encodeReadingBatch(all, ring)); err != nil {
			t.Fatal(err)
		}
	}
	disk := &deadFS{store.LocalDisk.FS, true}
	s, err := OpenStoredSource(&data.Config{Source: data.SourceMQTT}, store.Disk{FS: disk}, dir)
	if err != nil {
		t.Fatal(err)
	}
	w := airWant()
	if got := s.Survey(&w); faultsOf(got, "", survey.ReasonUnreadable).Count != 1 || faultsOf(got, "",
		survey.ReasonDamaged).Count != 1 {
		t.Errorf("a disk that is dead: %+v", got)
	}
	rows := s.OpenRows(w)
	for range 2 {
		if _, err := rows.Snapshot(); !errors.Is(err, syscall.EIO) || !rows.Changed() {
			t.Errorf("a disk that is dead: %v", err)
		}
	}
	disk.dead = false
	if got := s.Survey(&w); faultsOf(got, "", survey.ReasonUnreadable).Count != 0 || faultsOf(got, "",
		survey.ReasonDamaged).Count != 1 || got.LineCount != 96 {
		t.Errorf("a damaged ring: %+v", got)
	}
	v, err := rows.Snapshot()
	if err != nil || v.Rows.Len() != 46 || rows.Changed() {
		t.Errorf("a damaged ring: %+v, %v", v, err)
	}
	if got := rows.(data.QualityReporter).QualityReport().Troubles; len(got) != 1 ||
		got[0].Kind != data.TroubleStorage ||
		!strings.Contains(got[0].Text, "the stored data is not a valid batch of readings") {
		t.Errorf("troubles %+v", got)
	}
}

// TestSurveyAgrees checks that a survey and the rows of the same file count the same values.
func TestSurveyAgrees(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 9))
	words := []string{"", "1", "2.5", "-7", "70", "NaN", "x", "1e39", "N", "S", "true", "1;5"}
	for round := range 200 {
		var b strings.Builder
		b.WriteString("t,temp,wd,y\n")
		for i := range 40 {
			at := time.Unix(1.7e9, 0).UTC().Add(time.Duration(i*3600-rng.IntN(2)*rng.IntN(7200)) * time.Second)
			text := at.Format(time.RFC3339)
			if round%4 < 2 && rng.IntN(20) == 0 {
				text = "then"
			}
			word := func() string { return words[rng.IntN(len(words))] }
			fmt.Fprintf(&b, "%s,%q,%q,%q\n", text, word(), word(), word())
		}
		path := filepath.Join(t.TempDir(), "d.csv")
		if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		w := data.RowQuery{Features: []string{"temp"}, Target: "y"}
		if round%2 == 1 {
			w = airWant()
		}
		c := &data.Config{CSVPath: path, TimeColumn: "t", MaxUnusableShare: 0.99}
		s := storedAt(t, c, "").Survey(&w)
		rows := storedAt(t, c, "").OpenRows(w)
		_, _ = rows.Snapshot() // the source may contain no rows
		for _, r := range rows.(data.QualityReporter).QualityReport().Columns {
			i := slices.IndexFunc(s.Columns, func(c survey.ColumnSummary) bool { return c.Name == r.Name })
			bad := uint64(faultsOf(s, "t", grid.ReasonBadTime).Count)
			// Rows do not count the cells of a line whose time is unusable, but a survey reports the faults of these
			// cells.
			more := bad > 0 || w.Recipe == nil && faultsOf(s, "t", grid.ReasonLate).Count > 0
			switch {
			case r.Name == "t" && r.Unused[grid.ReasonBadTime] != bad,
				i >= 0 && w.Recipe == nil && s.Columns[i].Used != r.Used,
				// Some readings are still queued.
				i >= 0 && w.Recipe != nil && s.Columns[i].Used < r.Used+r.Unused[grid.ReasonDuplicate]:
				t.Fatalf("round %d: survey %+v\n%+v\nreport %+v\n%s", round, s, s.Columns, r, &b)
			}
			for why, n := range r.Unused {
				if why == grid.ReasonOutOfRange || why == grid.ReasonUnknownClass || why == grid.ReasonNotANumber {
					if got := faultsOf(s, r.Name, why).Count; got < int(n) || got > int(n) && !more {
						t.Fatalf("round %d: %s has %d %s, the report %d\n%s", round, r.Name, got, why, n, &b)
					}
				}
			}
		}
	}
}

// TestSurveyIsBounded checks that the number of stored faults, values and texts of a survey does not grow with the
// file.
func TestSurveyIsBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("a,y\n")
	for i := range 5000 {
		fmt.Fprintf(&b, "x%d,%d\n", i, i)
	}
	path := filepath.Join(t.TempDir(), "d.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	s := storedAt(t, &data.Config{CSVPath: path}, "").Survey(&data.RowQuery{Features: []string{"a"}, Target: "y"})
	if f := faultsOf(s, "a",
		grid.ReasonNotANumber); f.Count != 5000 || len(f.FirstFaults) != survey.MaxFaultsPerGroup ||
		f.LastLine != 5001 {
		t.Errorf("%d faults, %d told, the last in line %d", f.Count, len(f.FirstFaults), f.LastLine)
	}
	total := 0
	for _, n := range s.Columns[1].Histogram {
		total += n
		if n < 512/16/2 {
			t.Errorf("the histogram of even values is %d", s.Columns[1].Histogram)
		}
	}
	sigma := math.Sqrt((5000*5000 - 1) / 12.)
	if y := s.Columns[1]; total != survey.MaxHistogramSample || y.Used != 5000 || y.Mean != 2499.5 ||
		math.Abs(y.Sigma-sigma) > 1e-6 {
		t.Errorf("%+v, σ should be %v", y, sigma)
	}
	s = storedAt(t, &data.Config{CSVPath: path}, "").Survey(nil)
	if a := s.Columns[0]; len(a.Texts) != survey.MaxDistinctTexts || a.Used != 5000 || len(s.Faults) > 0 {
		t.Errorf("%+v", s)
	}
}

// TestQuoteWithoutEnd checks that a quote that is never closed does not make the reader load more than one line into
// memory.
func TestQuoteWithoutEnd(t *testing.T) {
	text := "a,y\n1,2\n1,\"" + strings.Repeat("x", 4<<20)
	_, err := ReadCSV[float64](strings.NewReader(text), "d.csv", []string{"a"}, "y", RowFilter{})
	if err == nil || !strings.Contains(err.Error(), "line 3: the line is longer than 1048576 bytes") {
		t.Error(err)
	}
}

// TestGuessDecimal checks that another decimal separator is suggested only if most cells that are not numbers require
// it.
func TestGuessDecimal(t *testing.T) {
	for _, tt := range []struct {
		commas, points, words int
		want                  string
	}{{10, 0, 2, ","}, {2, 0, 10, ""}, {3, 9, 0, ""}, {9, 3, 0, ","}, {0, 0, 0, ""}} {
		path := filepath.Join(t.TempDir(), "d.csv")
		text := "a;y\n" + strings.Repeat("1,5;2\n", tt.commas) + strings.Repeat("1.5;2\n", tt.points) +
			strings.Repeat("x;2\n", tt.words) + "1;2\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := &data.Config{CSVPath: path, Delimiter: ";"}
		s := storedAt(t, c, "").Survey(&data.RowQuery{Features: []string{"a"}, Target: "y"})
		if got := survey.ApplyConfigChanges(c, s.ConfigChanges).DecimalSeparator; got != tt.want {
			t.Errorf("%+v: decimal %q", tt, got)
		}
	}
}

func TestGuessFormat(t *testing.T) {
	for want, texts := range map[string][]string{
		"rfc3339":             {"2026-03-01T12:00:00Z", "2026-03-01T12:00:00+01:00"},
		"unix":                {"1772366400", "1772366400.25"},
		"unix_ms":             {"1772366400000"},
		"2006-01-02 15:04:05": {"2026-03-01 12:00:00", "2026-03-01 12:00:00.5"},
		"02.01.2006 15:04":    {"01.03.2026 12:00"},
		"01/02/2006 15:04":    {"03/01/2026 12:00", "03/13/2026 12:00"},
		"":                    {"2026-03-01 12:00:00", "noon"},
	} {
		if got, _ := guessTimeFormat(texts, nil); got != want {
			t.Errorf("%q is %q, want %q", texts, got, want)
		}
	}
	for text, hint := range map[string]bool{"2026-03-01 12:00": true, "3/1/2026 3:04 PM": true, "2026-03-01 5": false,
		"2026-03-01T12:00:00Z": false, "1772366400": false, "2026-03-01 12:00:00 +0100": false,
		"Sun, 01 Mar 2026 12:00:00 CET": false} {
		if _, why := guessTimeFormat([]string{text}, nil); strings.Contains(why, "data.time_zone") != hint {
			t.Errorf("%s: %s", text, why)
		}
	}
	if got, why := guessTimeFormat([]string{"03/01/2026 12:00"}, nil); got != "02/01/2006 15:04" ||
		!strings.Contains(why, `but the time layout "01/02/2006 15:04" also matches these times`) {
		t.Errorf("%s: %s", got, why)
	}
}

// FuzzSurvey checks that the survey of any file is bounded. If no rows can be made from the file, the survey must
// contain a fault or a suggested change.
func FuzzSurvey(f *testing.F) {
	for _, text := range []string{"", "\n", "t,temp,wd,y\n2026-03-01T00:00:00Z,1,N,2\n",
		"t;temp;wd;y\r\n1;\"2,5\";N;\r\n",
		"\ufeff\"t\"\ttemp\n1\t\"", "t,temp,temp\n1,2,3\n", "a|b\n1|2\n", "t,temp,wd,y\n01.03.2026 00:00,1,N,2\n"} {
		f.Add(text, uint8(0))
		f.Add(text, uint8(3))
	}
	path := filepath.Join(f.TempDir(), "d.csv")
	f.Fuzz(func(t *testing.T, text string, kind uint8) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := &data.Config{CSVPath: path, TimeColumn: []string{"", "t"}[kind%2], MaxUnusableShare: 0.5}
		w := &data.RowQuery{Features: []string{"temp"}, Target: "y"}
		switch kind / 2 % 3 {
		case 1:
			*w = airWant()
		case 2:
			w = nil
		}
		s := storedAt(t, c, "").Survey(w)
		if len(s.ConfigChanges) > 3 || len(s.Columns) > maxSourceInputs {
			t.Errorf("%d changes, %d columns", len(s.ConfigChanges), len(s.Columns))
		}
		for _, f := range s.Faults {
			if len(f.FirstFaults) == 0 || len(f.FirstFaults) > survey.MaxFaultsPerGroup ||
				f.Count < len(f.FirstFaults) {
				t.Errorf("%+v", f)
			}
		}
		if w == nil {
			return
		}
		var bad *data.FileError
		if _, err := survey.DescribeRows(storedAt(t, c, ""), *w); errors.As(err,
			&bad) && len(s.Faults)+len(s.ConfigChanges) == 0 &&
			s.LineCount > 0 && strings.HasSuffix(text, "\n") && // otherwise the last line may be incomplete
			!strings.Contains(bad.Problem, "no rows can be built yet") {
			t.Errorf("no fault of %q, but %v", text, err)
		}
	})
}
