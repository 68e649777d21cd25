package sources

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/survey"
	"github.com/fedmesh/fedmesh/spec"
)

// TestChangedLines checks files whose lines were damaged as by loggers, spreadsheets and power cuts. No value may be
// read from a wrong column, and only the given lines may be lost, whether the file is read at once or while it grows.
// `agentd data check` must find as many faults as the agent.
func TestChangedLines(t *testing.T) {
	lines := hourlyLines(0, 60)
	for name, tt := range map[string]struct {
		change func(lines []string) []string
		lost   []int // indices of the lines whose values must not be used
	}{
		"another order of columns": {func(l []string) []string {
			for i := 30; i < len(l); i++ {
				f := strings.Split(l[i], ",")
				l[i] = strings.Join([]string{f[0], f[2], f[1]}, ",")
			}
			return slices.Insert(l, 30, "time,hum,temp")
		}, nil},
		"a column inserted": {func(l []string) []string {
			for i := 30; i < len(l); i++ {
				at, rest, _ := strings.Cut(l[i], ",")
				l[i] = at + ",1013," + rest
			}
			return slices.Insert(l, 30, "time,press,temp,hum")
		}, nil},
		"a column inserted without a header": {func(l []string) []string {
			for i := 30; i < len(l); i++ {
				at, rest, _ := strings.Cut(l[i], ",")
				l[i] = at + ",1013," + rest
			}
			return l
		}, []int{30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55,
			56, 57, 58, 59}},
		"the same header": {func(l []string) []string { return slices.Insert(l, 30, "time,temp,hum") }, nil},
		"a column added, often empty": {func(l []string) []string {
			for i := 30; i < len(l); i++ {
				if l[i] += ","; i%2 == 0 {
					l[i] += "7"
				}
			}
			return l
		}, nil},
		"a column added and half a line": {func(l []string) []string {
			for i := 30; i < len(l); i++ {
				l[i] += ",7"
			}
			l[40] = strings.TrimSuffix(l[40], ",7")
			return l
		}, []int{40}},
		"decimal commas at times": {func(l []string) []string {
			for i := 12; i < 60; i++ {
				if i%12 < 6 {
					l[i] = strings.Replace(l[i], ",", ",5,", 1)
				}
			}
			return l
		}, []int{12, 13, 14, 15, 16, 17, 24, 25, 26, 27, 28, 29, 36, 37, 38, 39, 40, 41, 48, 49, 50, 51, 52, 53}},
		"two lines without a break": {func(l []string) []string {
			l[30] += l[31]
			return slices.Delete(l, 31, 32)
		}, []int{30, 31}},
		"NUL bytes behind half a line": {func(l []string) []string {
			l[30] = l[30][:len(l[30])-1] + "\x00\x00\x00"
			return l
		}, []int{30}},
		"carriage returns only": {func(l []string) []string {
			return append(l[:40:40], strings.Join(l[40:50], "\r"), strings.Join(l[50:], "\n"))
		}, nil},
		"a reset clock": {func(l []string) []string {
			for i := 20; i < 45; i++ {
				l[i] = hourlyLine(i, time.Date(2000, 1, 1, i, 0, 0, 0, time.UTC))
			}
			return l
		}, []int{20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44}},
	} {
		t.Run(name, func(t *testing.T) {
			good := slices.Clone(lines)
			for _, n := range slices.Backward(tt.lost) {
				good = slices.Delete(good, n, n+1)
			}
			changed := tt.change(slices.Clone(lines))
			for what, w := range map[string]data.RowQuery{"rows": {Features: []string{"temp"}, Target: "hum"},
				"readings": hourlyInputs(spec.InputSeries{Name: "temp"}, spec.InputSeries{Name: "hum"})} {
				read := func(lines []string, grows bool) (x []float32, bad uint64) {
					x, path, report := readLines(t, w, lines, grows)
					for _, c := range report.Columns {
						bad = max(bad, c.Unused[grid.ReasonMalformed])
					}
					survey := storedAt(t, &data.Config{CSVPath: path, TimeColumn: "time"}, "").Survey(&w)
					faults := uint64(0)
					for _, f := range survey.Faults {
						if f.Reason == grid.ReasonMalformed {
							faults += uint64(f.Count)
						}
					}
					if faults != bad {
						t.Errorf("%s: %d lines are malformed, by the check %d", what, bad, faults)
					}
					return x, bad
				}
				want, _ := read(good, false)
				for _, grows := range []bool{false, true} {
					if got, _ := read(changed, grows); !slices.Equal(got, want) {
						t.Errorf("%s, grows %t: %d values, want %d: %v", what, grows, len(got), len(want), got)
					}
				}
			}
		})
	}
}

// TestAddedField checks that the position of a field that was added to the lines is found.
func TestAddedField(t *testing.T) {
	above := []string{"1,20.5,50,ok", "2,20.7,51,ok", "3,20.4,,ok", "4,20.8,52,warm", "5,20.6,51,ok"}
	for lines, want := range map[string]int{
		"6,20.5,51,ok,1013\n7,20.6,50,ok,1014": -1,
		"6,24.9,58,ok,1013\n7,24.8,58,ok,1014": -1, // the lines follow a gap
		"6,20.5,51,ok,new\n7,20.6,50,ok,new":   -1,
		"6,1013,20.5,51,ok\n7,1014,20.6,50,ok": 1,
		"6,20.5,1013,51,ok\n7,20.6,1014,50,ok": 2,
		"6,20.5,51,7,ok\n7,20.6,50,7,ok":       3,
		"6,a,b,20.5,51,ok\n7,a,b,20.6,50,ok":   1,
		"x,6,20.5,51,ok\nx,7,20.6,50,ok":       0,
	} {
		var recent recentCSVRecords
		for range 3 {
			for _, line := range above {
				recent.addRecord(strings.Split(line, ","))
			}
		}
		var wider [][]string
		for _, line := range strings.Split(lines, "\n") {
			wider = append(wider, strings.Split(line, ","))
		}
		if got := recent.insertedFieldPosition(wider); got != want {
			t.Errorf("%q: field %d, want %d", lines, got, want)
		}
	}
	var few recentCSVRecords
	few.addRecord([]string{"1", "20.5"})
	if got := few.insertedFieldPosition([][]string{{"2", "1013", "20.5"}}); got != -1 {
		t.Errorf("with only one earlier record: field %d, want -1", got)
	}
}

// TestAddedFieldsAreReported checks that the agent and `agentd data check` report lines with more fields than the
// header, until a new header names all fields.
func TestAddedFieldsAreReported(t *testing.T) {
	lines := hourlyLines(0, 20)
	for i := 10; i < len(lines); i++ {
		lines[i] += ",7"
	}
	w := data.RowQuery{Features: []string{"temp"}, Target: "hum"}
	_, path, report := readLines(t, w, lines, true)
	want := path + ": line 12: from this line on, lines have 4 fields, but the header has 3: the additional fields " +
		"are ignored; " +
		addedFieldsAdvice
	if len(report.Troubles) != 1 || report.Troubles[0] != (data.SourceTrouble{Kind: data.TroubleUnusedValues,
		Text: want}) {
		t.Errorf("%q, want %q", report.Troubles, want)
	}
	faults := storedAt(t, &data.Config{CSVPath: path, TimeColumn: "time"}, "").Survey(&w).Faults
	if len(faults) != 1 || faults[0].Reason != survey.ReasonAddedFields || faults[0].FirstFaults[0].Line != 12 ||
		faults[0].Remedy != addedFieldsAdvice {
		t.Errorf("faults %+v", faults)
	}
	_, _, report = readLines(t, w, slices.Insert(lines, 10, "time,temp,hum,press"), true)
	if len(report.Troubles) != 0 {
		t.Errorf("with a header: %q", report.Troubles)
	}
}

// TestUnclosedQuotes checks that an unclosed quote does not swallow all lines up to the next quote.
func TestUnclosedQuotes(t *testing.T) {
	text := "time,note,temp,hum\n"
	for i := range 30 {
		note := map[int]string{5: `"hatch open`, 20: `pipe 3"`}[i]
		text += fmt.Sprintf("2026-03-01T%02d:%02d:00Z,%s,%d,%d\n", i/2, i%2*30, note, 20+i, 50+i)
	}
	h, r := followGrowing(t, data.RowQuery{Features: []string{"temp"}, Target: "hum"})
	h.put(t, text)
	v, err := r.Snapshot()
	if err != nil || v.Rows.Len() != 30 || v.Rows.All().X[20] != 40 {
		t.Errorf("%v, %v; %v", v.Rows, err, r.(data.QualityReporter).QualityReport())
	}
}

// TestBadFilesOfFolder checks that an unreadable file of a folder is reported and all other files are used.
func TestBadFilesOfFolder(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err := z.Write([]byte(dayFile(4, 1000)))
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		file, text string
		more       int // number of rows that are read from the file
	}{
		"empty":            {"log-2026-03-03.csv", "", 0},
		"half a header":    {"log-2026-03-03.csv", "time,te", 0},
		"NUL bytes":        {"log-2026-03-03.csv", strings.Repeat("\x00", 600), 0},
		"notes":            {"readme.txt", "These files were\nwritten by\nthe logger.\n", 0},
		"another sort":     {"log-2026-03-03.csv", strings.ReplaceAll(dayFile(3, 4), ",", ";"), 0},
		"a column is gone": {"log-2026-03-03.csv", "time,temp\n2026-03-03T00:00:00Z,1\n", 0},
		"torn gzip":        {"log-2026-03-04.csv.gz", zipped.String()[:zipped.Len()*3/4], 1},
		"no gzip":          {"log-2026-03-04.csv.gz", dayFile(4, 5), 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for day := 1; day <= 2; day++ {
				put(t, filepath.Join(dir, fmt.Sprintf("log-2026-03-%02d.csv", day)), dayFile(day, 24))
			}
			put(t, filepath.Join(dir, tt.file), tt.text)
			old := time.Now().Add(-time.Hour)
			if err := os.Chtimes(filepath.Join(dir, tt.file), old, old); err != nil {
				t.Fatal(err)
			}
			config := data.Config{CSVPath: dir, TimeColumn: "time"}
			w := data.RowQuery{Features: []string{"temp"}, Target: "hum"}
			s, err := Open(&config)
			if err != nil {
				t.Fatal(err)
			}
			r := s.OpenRows(w)
			v, err := r.Snapshot()
			if err != nil || v.Rows.Len() < 48+tt.more || tt.more == 0 && v.Rows.Len() != 48 {
				t.Fatalf("%+v, %v", v, err)
			}
			troubles := r.(data.QualityReporter).QualityReport().Troubles
			if len(troubles) != 1 || troubles[0].Kind != data.TroubleUnusedValues || !strings.Contains(troubles[0].Text,
				tt.file) {
				t.Errorf("troubles %q", troubles)
			}
			survey := storedAt(t, &config, "").Survey(&w)
			if len(survey.ConfigChanges) > 0 || len(survey.Faults) == 0 || survey.Faults[0].FirstFaults[0].File == "" &&
				!strings.Contains(survey.Faults[0].FirstFaults[0].Problem, tt.file) {
				t.Errorf("the check: %+v, changes %+v", survey.Faults, survey.ConfigChanges)
			}
			if survey.LineCount != v.Rows.Len() {
				t.Errorf("the check has %d lines, the agent %d rows", survey.LineCount, v.Rows.Len())
			}
			put(t, filepath.Join(dir, tt.file), strings.Replace(dayFile(3, 4), "time", "time", 1))
			if strings.HasSuffix(tt.file, ".csv") { // the file is now complete
				if v, err := r.Snapshot(); err != nil || v.Rows.Len() != 52 {
					t.Errorf("after the repair: %+v, %v", v, err)
				}
			}
		})
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLinesReadOnce checks that each line is read once and with the correct line number, although the last line may
// have no line break yet or may be impossible to parse.
func TestLinesReadOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		steps []string // texts that are appended one after another
		want  []float32
		where string // place of the last rejected line
	}{
		"a line without a break below a wider one": {
			[]string{"time,temp,hum\n1,1,1\n2,2,2,2\n3,3,3", "\n4,4,4\n"}, []float32{1, 3, 4}, "line 3"},
		"a wider line waits": {[]string{"time,temp,hum\n1,1,1\n2,2,2,2\n3,3", ",3,3\n4,4,4,4\n"},
			[]float32{1, 2, 3, 4}, ""},
		"half a line behind a carriage return": {[]string{"time,temp,hum\n1,1,1\n2,2,2\r3,3", ",3\n"},
			[]float32{1, 2, 3}, ""},
		"a line break that follows": {[]string{"time,temp,hum\n1,1,1\n2,2,2", "\n3,3\n4,4,4\n"},
			[]float32{1, 2, 4}, "line 4"},
		"a delimiter at each end": {[]string{"time,temp,hum,\n1,1,1,\n2,2,5,2,\n3,3,3,\n4,4,4,\n5,5,5,\n"},
			[]float32{1, 3, 4, 5}, "line 3"},
		"a header that does not fit": {[]string{"time,temp,hum\n1,1,1\ntime,temp\n2,2\n", "time,temp,hum\n3,3,3\n"},
			[]float32{1, 3}, "line 4"},
	} {
		t.Run(name, func(t *testing.T) {
			h, r := followGrowing(t, data.RowQuery{Features: []string{"temp"}, Target: "hum"})
			text := ""
			for _, step := range tt.steps {
				text += step
				h.put(t, text)
				for range 3 { // check again after the file has not changed for some time
					old := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
					v, err := r.Snapshot()
					if err != nil {
						t.Fatal(err)
					}
					if x := v.Rows.All().X; len(slices.Compact(slices.Clone(x))) < len(x) {
						t.Errorf("rows are doubled: %v", x)
					}
					if err := os.Chtimes(h.path, old, old); err != nil {
						t.Fatal(err)
					}
				}
			}
			v, err := r.Snapshot()
			if err != nil || !slices.Equal(v.Rows.All().X, tt.want) {
				t.Errorf("%v, %v; want %v", v.Rows.All().X, err, tt.want)
			}
			where := ""
			for _, c := range r.(data.QualityReporter).QualityReport().Columns {
				if c.Unused[grid.ReasonMalformed] > 0 {
					_, where, _ = strings.Cut(c.LastUnusedWhere, ": ")
				}
			}
			if where != tt.where {
				t.Errorf("the last line that is not used is %q, want %q", where, tt.where)
			}
		})
	}
}

// TestFolderIsCompleted checks that rows are in the order of their files even if a file is completed after later files
// were read.
func TestFolderIsCompleted(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err := z.Write([]byte(dayFile(2, 24)))
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ file, before, after string }{
		"an empty file":     {"log-2.csv", "", dayFile(2, 24)},
		"an empty gzip":     {"log-2.csv.gz", "", zipped.String()},
		"a part of a gzip":  {"log-2.csv.gz", zipped.String()[:zipped.Len()-9], zipped.String()},
		"the last, in part": {"log-9.csv.gz", zipped.String()[:zipped.Len()-9], zipped.String()},
	} {
		t.Run(name, func(t *testing.T) {
			dir, now := t.TempDir(), time.Now()
			put(t, filepath.Join(dir, "log-1.csv"), dayFile(1, 24))
			if tt.file != "log-9.csv.gz" {
				put(t, filepath.Join(dir, "log-3.csv"), dayFile(3, 10))
			}
			put(t, filepath.Join(dir, tt.file), tt.before)
			s, err := Open(&data.Config{CSVPath: dir, TimeColumn: "time"})
			if err != nil {
				t.Fatal(err)
			}
			s.(*csvFile).now = func() time.Time { return now }
			r := s.OpenRows(data.RowQuery{Features: []string{"temp"}, Target: "hum"})
			if _, err := r.Snapshot(); err != nil {
				t.Fatal(err)
			}
			put(t, filepath.Join(dir, tt.file), tt.after)
			want := 58
			if tt.file == "log-9.csv.gz" {
				want = 48
			}
			for range 3 {
				now = now.Add(time.Minute)
				v, err := r.Snapshot()
				if err != nil || v.Rows.Len() != want || v.Rows.All().X[24] != 24 {
					t.Fatalf("%v, %v", v.Rows, err)
				}
			}
		})
	}
}

// TestHeaderOfAnotherInput checks that values below a new header belong to the columns of this header, even if it
// shares no column with the previous header.
func TestHeaderOfAnotherInput(t *testing.T) {
	text := "time,temp\n"
	for i, line := range hourlyLines(0, 40) {
		f := strings.Split(line, ",")
		if i == 20 {
			text += "time,hum\n"
		}
		text += f[0] + "," + f[1] + "\n"
	}
	h, r := followGrowing(t, hourlyInputs(spec.InputSeries{Name: "temp"}, spec.InputSeries{Name: "hum"}))
	h.put(t, text)
	_, err := r.Snapshot()
	report := r.(data.QualityReporter).QualityReport()
	temp, hum := report.EnsureColumn("temp"), report.EnsureColumn("hum")
	if temp.Used != 20 || hum.Used != 19 { // the last reading is still queued
		t.Errorf("%v, %v", err, report)
	}
}

// TestLastRowIsPredicted checks that a row reader returns a line with too many fields without waiting for the next
// line.
func TestLastRowIsPredicted(t *testing.T) {
	r, err := NewRowReader(&data.Config{}, strings.NewReader("a,b\n1,2\n1,2,3\n"), "f.csv", []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, 2)
	if _, err := r.Next(x); err != nil {
		t.Error(err)
	}
	if _, err := r.Next(x); err == nil || !strings.Contains(err.Error(), "3 fields, but the header has 2") {
		t.Error(err)
	}
}
