package sources

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/rows"
	"github.com/fedmesh/fedmesh/data/survey"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// fileCase is a file of testdata/cases with its configuration and the expected results.
type fileCase struct {
	file   string
	config data.Config
	want   data.RowQuery
	rows   int
	// faults contains the expected faults of the survey: column, reason, count, and line of the first fault.
	faults string
	// change of the configuration that the survey must suggest; it is applied before the rows are made
	change survey.SuggestedConfigChange
	advice string // advice that the survey must give; it is followed before the rows are made
}

// hourlyInputs returns a query with hourly inputs and the temperature one hour ahead as target.
func hourlyInputs(inputs ...spec.InputSeries) data.RowQuery {
	r := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Hour, Lateness: 10 * time.Minute}, Inputs: inputs}.WithDefaults()
	w := data.RowQuery{Features: []string{"temp", "temp lag 1h"}, Target: "temp in 1h", Recipe: &r}
	for _, in := range inputs[1:] {
		w.Features = append(w.Features, in.Name)
		if len(in.Classes) > 0 {
			w.Features[len(w.Features)-1] += " = " + in.Classes[0]
		}
	}
	return w
}

func cases() []fileCase {
	climate := hourlyInputs(spec.InputSeries{Name: "temp"}, spec.InputSeries{Name: "hum"})
	window := climate
	window.Features = []string{"temp", "temp mean 24h", "hum"}
	rows := data.RowQuery{Features: []string{"a", "b"}, Target: "y"}
	flow := func(join spec.Resampling) data.RowQuery {
		r := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Minute, Lateness: 10 * time.Second},
			Inputs: []spec.InputSeries{{Name: "flow", Resampling: join}}}.WithDefaults()
		return data.RowQuery{Features: []string{"flow", "flow lag 1m"}, Target: "flow in 1m", Recipe: &r}
	}
	wind := hourlyInputs(spec.InputSeries{Name: "temp"}, spec.InputSeries{Name: "wd", Classes: []string{"N", "E", "S",
		"W"}})
	numbers := hourlyInputs(spec.InputSeries{Name: "temp"}, spec.InputSeries{Name: "wd", Classes: []string{"1", "2",
		"3", "4"}})
	labelled := func(set learner.LabelSet) data.RowQuery { w := rows; w.Labels = set; return w }
	german := data.Config{TimeColumn: "time", Delimiter: ";", TimeFormat: "02.01.2006 15:04"}
	return []fileCase{
		// One of the 120 hours is missing. Three rows require this hour, and the last two rows wait for their targets.
		{file: "line-of-2036/data.csv", config: data.Config{TimeColumn: "time"}, want: climate, rows: 114,
			faults: "time future 1 32"},
		{file: "line-of-2036/rows.csv", config: data.Config{TimeColumn: "t"}, want: rows, rows: 119,
			faults: "t future 1 32"},
		{file: "line-of-2036/rows-late.csv", config: data.Config{TimeColumn: "t"}, want: rows, rows: 119,
			faults: "t future 1 112"},
		{file: "torn-line/half.csv", config: data.Config{TimeColumn: "time"}, want: climate, rows: 114,
			faults: " malformed 1 62"},
		{file: "torn-line/nul.csv", config: data.Config{TimeColumn: "time"}, want: climate, rows: 114,
			faults: " malformed 1 62"},
		{file: "torn-line/column-added.csv", config: data.Config{TimeColumn: "time"}, want: climate, rows: 117,
			faults: " added_fields 1 102"},
		{file: "torn-line/trailing-comma.csv", config: data.Config{TimeColumn: "time"}, want: climate, rows: 117},
		{file: "quote-in-a-note/data.csv", config: data.Config{TimeColumn: "time"}, want: climate, rows: 117},
		{file: "lines-above-the-header/sep.csv", config: data.Config{TimeColumn: "time", Delimiter: ";"}, want: climate,
			rows: 57},
		{file: "lines-above-the-header/sep.csv", config: data.Config{TimeColumn: "time"}, want: climate, rows: 57},
		{file: "lines-above-the-header/comment.csv", config: data.Config{TimeColumn: "time"}, want: climate, rows: 57,
			advice: "set data.skip_rows to 1"},
		{file: "lines-above-the-header/comment.csv", config: data.Config{TimeColumn: "time", CommentPrefix: "#"},
			want: climate,
			rows: 57},
		{file: "lines-above-the-header/toa5.csv", config: data.Config{TimeColumn: "TIMESTAMP",
			TimeFormat: time.DateTime},
			want: climate, rows: 57, advice: "set data.skip_rows to 1"},
		{file: "encodings/latin1.csv", config: data.Config{TimeColumn: "time"}, want: climate, rows: 57,
			advice: `set data.columns: {"temp": "Temp (°C)"}`},
		{file: "encodings/utf16.csv", config: data.Config{TimeColumn: "time"}, want: climate, rows: 57},
		{file: "encodings/mac.csv", config: data.Config{TimeColumn: "time"}, want: climate, rows: 57},
		{file: "hour-24/data.csv", config: german, want: climate, rows: 236},
		{file: "hour-24/data.csv", config: german, want: window, rows: 214},
		{file: "hour-24/midnight.csv", config: data.Config{TimeColumn: "time", TimeFormat: time.DateTime},
			want: climate,
			rows: 237},
		{file: "epoch-ns/ns.csv", config: data.Config{TimeColumn: "time", TimeFormat: "unix_ns"}, want: climate,
			rows: 57},
		{file: "epoch-ns/ns.csv", config: data.Config{TimeColumn: "time"}, want: climate, rows: 57,
			change: survey.SuggestedConfigChange{Key: "time_format", Value: "unix_ns"}},
		{file: "epoch-ns/s-as-ms.csv", config: data.Config{TimeColumn: "time", TimeFormat: "unix_ms"}, want: climate,
			rows:   57,
			change: survey.SuggestedConfigChange{Key: "time_format", Value: "unix"}},
		{file: "three-meters-one-second/data.csv", config: data.Config{TimeColumn: "time"},
			want: flow(spec.ResampleSum),
			rows: 37},
		{file: "three-meters-one-second/other-order.csv", config: data.Config{TimeColumn: "time"},
			want: flow(spec.ResampleSum),
			rows: 37},
		{file: "three-meters-one-second/data.csv", config: data.Config{TimeColumn: "time"},
			want: flow(spec.ResampleCount),
			rows: 37},
		{file: "na-of-a-class/na.csv", config: data.Config{TimeColumn: "time"}, want: wind, rows: 82},
		{file: "na-of-a-class/empty.csv", config: data.Config{TimeColumn: "time"}, want: wind, rows: 82},
		{file: "na-of-a-class/floats.csv", config: data.Config{TimeColumn: "time"}, want: numbers, rows: 82},
		{file: "new-label/data.csv", config: data.Config{TimeColumn: "t"},
			want:   labelled(learner.LabelSet{ClassCount: 3}),
			rows:   119,
			faults: "y unknown_class 1 92"},
		{file: "new-label/two.csv", config: data.Config{TimeColumn: "t"},
			want:   labelled(learner.LabelSet{IsBinary: true}),
			rows:   119,
			faults: "y unknown_class 1 32"},
	}
}

// TestCases checks that the agent and `agentd data check` find the same faults in each file. It follows the suggested
// advice and compares the rows with the rows of a correct file.
func TestCases(t *testing.T) {
	for i, c := range cases() {
		t.Run(fmt.Sprintf("%d %s", i, c.file), func(t *testing.T) {
			config := c.config
			config.CSVPath = filepath.Join("testdata/cases", c.file)
			found := storedAt(t, &config, "").Survey(&c.want)
			if c.change.Key != "" {
				if len(found.ConfigChanges) != 1 || found.ConfigChanges[0].Key != c.change.Key ||
					found.ConfigChanges[0].Value != c.change.Value {
					t.Fatalf("changes %+v, want %+v", found.ConfigChanges, c.change)
				}
				config = *survey.ApplyConfigChanges(&config, found.ConfigChanges)
			}
			if c.advice != "" {
				applyAdvice(t, found, c.advice, &config)
				found = storedAt(t, &config, "").Survey(&c.want)
			}
			var faults []string
			for _, f := range found.Faults {
				faults = append(faults, fmt.Sprint(f.Column, " ", f.Reason, " ", f.Count, " ", f.FirstFaults[0].Line))
			}
			if got := strings.Join(faults, ", "); got != c.faults {
				t.Errorf("faults %q, want %q", got, c.faults)
			}
			checked, err := survey.DescribeRows(storedAt(t, &config, ""), c.want)
			if err != nil {
				t.Fatal("the check: ", err)
			}
			source, err := Open(&config)
			if err != nil {
				t.Fatal(err)
			}
			rows := source.OpenRows(c.want)
			view, err := rows.Snapshot()
			if err != nil {
				t.Fatal("the agent: ", err)
			}
			if view.Rows.Len() != c.rows || checked.Snapshot.Rows.Len() != c.rows {
				t.Errorf("%d rows, and by the check %d; want %d; %s", view.Rows.Len(), checked.Snapshot.Rows.Len(),
					c.rows,
					rows.(data.QualityReporter).QualityReport())
			}
			if strings.HasPrefix(c.file, "three-meters-one-second/") {
				want := float32(60)
				if c.want.Recipe.Inputs[0].Resampling == spec.ResampleCount {
					want = 3
				}
				if x := view.Rows.All().X; slices.ContainsFunc(x, func(v float32) bool { return v != want }) {
					t.Errorf("%v, want %v of three meters", x, want)
				}
			}
		})
	}
}

// applyAdvice changes a configuration according to the advice of a survey.
func applyAdvice(t *testing.T, s *survey.SourceSurvey, advice string, c *data.Config) {
	t.Helper()
	var all []string
	for _, f := range s.Faults {
		all = append(all, f.Remedy)
	}
	if !strings.Contains(strings.Join(all, "\n"), advice) {
		t.Fatalf("advice %q, want %q", all, advice)
	}
	var n int
	var name string
	if _, err := fmt.Sscanf(advice, "set data.skip_rows to %d", &n); err == nil {
		c.SkipRows = n
	} else if _, err := fmt.Sscanf(advice, `set data.columns: {"temp": %q}`, &name); err == nil {
		c.ColumnByInput = map[string]string{"temp": name}
	} else {
		t.Fatalf("nobody can follow %q", advice)
	}
}

// TestAdviceOfTheAgent checks that the agent's error for a header without the required columns also names the key to
// set.
func TestAdviceOfTheAgent(t *testing.T) {
	for _, w := range []data.RowQuery{cases()[0].want, {Features: []string{"temp"}, Target: "hum"}} {
		source, err := Open(&data.Config{CSVPath: "testdata/cases/lines-above-the-header/toa5.csv",
			TimeColumn: "TIMESTAMP",
			TimeFormat: time.DateTime})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = source.OpenRows(w).Snapshot(); err == nil || !strings.Contains(err.Error(),
			"set data.skip_rows to 1") {
			t.Error(err)
		}
	}
}

// hourlyLines returns lines with a temperature for each hour from 1 March 2026.
func hourlyLines(from, to int) (lines []string) {
	for k := from; k < to; k++ {
		lines = append(lines, hourlyLine(k, time.Date(2026, 3, 1, k, 0, 0, 0, time.UTC)))
	}
	return lines
}

func hourlyLine(k int, at time.Time) string {
	return fmt.Sprintf("%s,%d,1", at.UTC().Format(time.RFC3339), k)
}

// TestTimesAhead checks that lines with times in the future, at several positions of a file, are skipped and all other
// lines are used. This must hold for rows and for readings, whether the file is read at once or while it grows.
func TestTimesAhead(t *testing.T) {
	hour := func(k int) time.Time { return time.Date(2026, 3, 1, k, 0, 0, 0, time.UTC) }
	for _, tt := range []struct {
		name  string
		ahead []time.Time // times of the lines that replace the lines from the given position on
		place int
	}{
		{"2036", []time.Time{time.Date(2036, 2, 7, 6, 28, 16, 0, time.UTC)}, 30},
		{"2106", []time.Time{time.Unix(0xffffffff, 0)}, 30},
		{"a year too much", []time.Time{hour(30).AddDate(1, 0, 0)}, 30},
		{"twice the seconds since 1970", []time.Time{time.Unix(2*hour(30).Unix(), 0)}, 30},
		{"day and month swapped", []time.Time{time.Date(2026, 11, 3, 6, 0, 0, 0, time.UTC)}, 30},
		{"eight hours", []time.Time{hour(38)}, 30},
		{"the last line", []time.Time{time.Date(2036, 2, 7, 6, 28, 16, 0, time.UTC)}, 59},
		{"the second last line", []time.Time{time.Date(2036, 2, 7, 6, 28, 16, 0, time.UTC)}, 58},
		{"the first line", []time.Time{time.Date(2036, 2, 7, 6, 28, 16, 0, time.UTC)}, 0},
		{"six lines of 2036", []time.Time{hour(90000), hour(90001), hour(90002), hour(90003), hour(90004),
			hour(90005)}, 20},
		{"six lines of later", []time.Time{hour(100), hour(101), hour(102), hour(103), hour(104), hour(105)}, 20},
		{"none", nil, 0},
	} {
		lines := hourlyLines(0, 60)
		good := slices.Clone(lines)
		for i, at := range tt.ahead {
			lines[tt.place+i] = hourlyLine(tt.place+i, at)
		}
		good = slices.Delete(good, tt.place, tt.place+len(tt.ahead))
		for what, w := range map[string]data.RowQuery{"rows": {Features: []string{"temp"}, Target: "hum"},
			"readings": hourlyInputs(spec.InputSeries{Name: "temp"}, spec.InputSeries{Name: "hum"})} {
			read := func(lines []string, grows bool) ([]float32, data.QualityReport) {
				x, _, report := readLines(t, w, lines, grows)
				return x, report
			}
			want, _ := read(good, false)
			for _, grows := range []bool{false, true} {
				got, report := read(lines, grows)
				if !slices.Equal(got, want) {
					t.Errorf("%s, %s, grows %t: %d values, want %d: %v, %v", tt.name, what, grows, len(got),
						len(want), got, report)
				}
				future := uint64(0)
				for _, c := range report.Columns {
					future = max(future, c.Unused[grid.ReasonFutureTime])
				}
				if future != uint64(len(tt.ahead)) || slices.ContainsFunc(report.Columns,
					func(c data.ColumnReport) bool {
						return c.Unused[grid.ReasonLate] > 0
					}) {
					t.Errorf("%s, %s, grows %t: %v", tt.name, what, grows, report)
				}
			}
		}
	}
}

// readLines follows a file to which lines are appended, at once or one by one. It returns the features of the rows, the
// path of the file and the report.
func readLines(t *testing.T, w data.RowQuery, lines []string, grows bool) (x []float32, path string,
	report data.QualityReport) {
	t.Helper()
	h, r := followGrowing(t, w)
	for n := range lines {
		if !grows && n < len(lines)-1 {
			continue
		}
		h.put(t, "time,temp,hum\n"+strings.Join(lines[:n+1], "\n")+"\n")
		if v, err := r.Snapshot(); err == nil {
			x = v.Rows.All().X
		} else if n > 5 {
			t.Fatalf("line %d: %v", n, err)
		}
	}
	return x, h.path, r.(data.QualityReporter).QualityReport()
}

// followGrowing follows a file to which a test appends lines.
func followGrowing(t *testing.T, w data.RowQuery) (*csvHarness, data.QueriedRows) {
	t.Helper()
	h := &csvHarness{path: filepath.Join(t.TempDir(), "d.csv")}
	s, err := Open(&data.Config{CSVPath: h.path, TimeColumn: "time", MaxUnusableShare: 0.9})
	if err != nil {
		t.Fatal(err)
	}
	s.(*csvFile).now = func() time.Time { return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) }
	return h, s.OpenRows(w)
}

// TestFirstLabelIsWrong checks that the more frequent of the labels 0 and −1 is accepted for the second class, even if
// the first row has the rarer label. The file must be read again exactly once.
func TestFirstLabelIsWrong(t *testing.T) {
	for _, y := range []string{"0", "-1"} {
		wrong := map[string]string{"0": "-1", "-1": "0"}[y]
		lines := []string{"0," + wrong}
		for k := range 30 {
			lines = append(lines, fmt.Sprintf("%d,%s", k, []string{y, "1"}[k%2]))
		}
		h := &csvHarness{path: filepath.Join(t.TempDir(), "d.csv")}
		h.put(t, "x,y\n"+strings.Join(lines, "\n")+"\n")
		w := data.RowQuery{Features: []string{"x"}, Target: "y", Labels: learner.LabelSet{IsBinary: true}}
		c := data.Config{CSVPath: h.path}
		s, err := Open(&c)
		if err != nil {
			t.Fatal(err)
		}
		r := s.OpenRows(w)
		if v, err := r.Snapshot(); err != nil || v.Rows.Len() != 30 {
			t.Errorf("first %s: %+v, %v", wrong, v, err)
		}
		if n := r.(*rows.TaskRows).Shared.Maker.(*csvRowMaker).rereadLimit.RereadCount; n != 1 {
			t.Errorf("first %s: the file was read again %d times, want once", wrong, n)
		}
		faults := storedAt(t, &c, "").Survey(&w).Faults
		if len(faults) != 1 || faults[0].Reason != grid.ReasonUnknownClass || faults[0].Count != 1 {
			t.Errorf("first %s: the check finds %+v", wrong, faults)
		}
	}
}

// TestTimesOfAnotherZone checks that a file is used if all its times are ahead of the clock, or if only its last times
// are ahead by no more than a time zone difference.
func TestTimesOfAnotherZone(t *testing.T) {
	h, r := followGrowing(t, data.RowQuery{Features: []string{"temp"}, Target: "hum"})
	for _, from := range []time.Time{time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)} {
		var lines []string
		for k := range 20 {
			lines = append(lines, hourlyLine(k, from.Add(time.Duration(k)*time.Hour)))
		}
		h.put(t, "time,temp,hum\n"+strings.Join(lines, "\n")+"\n")
		if v, err := r.Snapshot(); err != nil || v.Rows.Len() != 20 {
			t.Errorf("from %v: %+v, %v", from, v, err)
		}
	}
}

// TestClockThatIsAlwaysAhead checks that a file in which the clock of one of two meters is always ahead is not read
// again for each line.
func TestClockThatIsAlwaysAhead(t *testing.T) {
	h, r := followGrowing(t, data.RowQuery{Features: []string{"temp"}, Target: "hum"})
	var lines []string
	for k, line := range hourlyLines(0, 3000) {
		lines = append(lines, line, line)
		if k%2 == 0 {
			lines = append(lines, hourlyLine(k, time.Date(2026, 3, 1, k+5, 0, 0, 0, time.UTC)))
		}
	}
	reads := 0
	for n := 100; n < len(lines); n += 10 {
		h.put(t, "time,temp,hum\n"+strings.Join(lines[:n], "\n")+"\n")
		if _, err := r.Snapshot(); err != nil && !errors.As(err, new(*data.FileError)) {
			t.Fatal(err)
		}
		reads = r.(*rows.TaskRows).Shared.Maker.(*csvRowMaker).rereadLimit.RereadCount
	}
	if reads > rows.MaxUnconditionalRereads+60 {
		t.Errorf("the file was read %d times", reads)
	}
}
