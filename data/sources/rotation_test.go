package sources

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/spec"
)

// dayFile returns a file with the first hours of a day of March 2026. The temperature is the hour of the month.
func dayFile(day, hours int) string {
	return "time,temp,hum\n" + strings.Join(hourlyLines(24*(day-1), 24*(day-1)+hours), "\n") + "\n"
}

// wider returns the file with an additional column.
func wider(text string) string {
	return strings.ReplaceAll(strings.Replace(text, "hum\n", "hum,new\n", 1), ",1\n", ",1,7\n")
}

// sequence returns the numbers from 0 to n − 1.
func sequence(n int) (all []float32) {
	for k := range n {
		all = append(all, float32(k))
	}
	return all
}

// TestFilesOfDays checks a folder, or a pattern, in which a data logger starts a new file each day. The rows of an old
// file must remain when the file is removed.
func TestFilesOfDays(t *testing.T) {
	for _, name := range []string{"", "log-*.csv", "log-2026-03-??.csv"} {
		for what, w := range map[string]data.RowQuery{"rows": {Features: []string{"temp"}, Target: "hum"},
			"readings": hourlyInputs(spec.InputSeries{Name: "temp"}, spec.InputSeries{Name: "hum"})} {
			dir := t.TempDir()
			put := func(name, text string) {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c := data.Config{CSVPath: filepath.Join(dir, name), TimeColumn: "time"}
			s, err := Open(&c)
			if err != nil {
				t.Fatal(err)
			}
			r := s.OpenRows(w)
			expect := func(hours int, renewed bool) {
				t.Helper()
				if !r.Changed() {
					t.Error("nothing has changed")
				}
				v, err := r.Snapshot()
				want := sequence(hours)
				// The row of the first reading lacks the previous hour, and the last two rows have no target yet.
				if what == "readings" {
					want = want[1 : hours-2]
				}
				got := firstFeatures(v, len(w.Features))
				if err != nil || !slices.Equal(got, want) || (v.ReplacementReason != "") != renewed {
					t.Fatalf("%q, %s: %v, %q, %v; want %v", name, what, got, v.ReplacementReason, err, want)
				}
				if r.Changed() {
					t.Error("it has changed again")
				}
			}
			put("log-2026-03-01.csv", dayFile(1, 20))
			expect(20, false)
			put("log-2026-03-01.csv", dayFile(1, 24))
			expect(24, false)
			put("log-2026-03-02.csv", dayFile(2, 5))
			put(".log-2026-03-03.csv", "hidden")
			put("log-2026-03-03.csv.tmp", "temporary")
			expect(29, false)
			put("log-2026-03-02.csv", dayFile(2, 24))
			put("log-2026-03-03.csv", wider(dayFile(3, 3)))
			expect(51, false)
			if err := os.Remove(filepath.Join(dir, "log-2026-03-01.csv")); err != nil {
				t.Fatal(err)
			}
			expect(51, false)
			put("log-2026-03-03.csv", wider(dayFile(3, 4)))
			expect(52, false)
		}
	}
}

// firstFeatures returns the first feature of all rows.
func firstFeatures(v data.RowSnapshot, features int) (all []float32) {
	if v.Rows == nil {
		return nil
	}
	x := v.Rows.All().X
	for i := 0; i < len(x); i += features {
		all = append(all, x[i])
	}
	return all
}

// TestRotation checks that rows remain if the new file has later times, when a file is copied and truncated, is
// replaced, or is a link whose target changes. If the new file does not have later times, it must be read from the
// start.
func TestRotation(t *testing.T) {
	for name, tt := range map[string]struct {
		rotate  func(t *testing.T, path, text string)
		text    string // content of the new file
		want    []float32
		renewed bool
	}{
		"truncated":     {truncate, dayFile(2, 2), sequence(26), false},
		"replaced":      {replaceFile, dayFile(2, 2), sequence(26), false},
		"link":          {replaceLink, dayFile(2, 2), sequence(26), false},
		"no row yet":    {truncate, "time,temp,hum\n", sequence(24), false},
		"empty":         {truncate, "", sequence(24), false},
		"written again": {replaceFile, dayFile(1, 12), sequence(12), true},
		"written again, longer": {replaceFile, dayFile(1, 24) + strings.Join(hourlyLines(24, 30), "\n") + "\n",
			sequence(30),
			false},
		"other columns":          {replaceFile, "time,hum,temp\n" + "2026-03-02T00:00:00Z,1,24\n", sequence(25), false},
		"behind, without a time": {replaceFile, "temp,hum\n7,1\n", nil, true},
	} {
		h, r := followGrowing(t, data.RowQuery{Features: []string{"temp"}, Target: "hum"})
		h.put(t, dayFile(1, 24))
		if got, err := r.Snapshot(); err != nil || got.Rows.Len() != 24 {
			t.Fatal(got, err)
		}
		tt.rotate(t, h.path, tt.text)
		v, err := r.Snapshot()
		if tt.want == nil {
			if err == nil || !strings.Contains(err.Error(), `column "time": this column is missing`) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || !slices.Equal(firstFeatures(v, 1), tt.want) || (v.ReplacementReason != "") != tt.renewed {
			t.Errorf("%s: %v, %q, %v", name, firstFeatures(v, 1), v.ReplacementReason, err)
		}
		if tt.renewed || tt.text == "" {
			continue
		}
		h.put(t, tt.text+hourlyLine(40, time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC))+"\n")
		if v, err = r.Snapshot(); name != "other columns" && (err != nil || v.ReplacementReason != "" ||
			!slices.Equal(firstFeatures(v, 1), append(tt.want, 40))) {
			t.Errorf("%s, and grown: %v, %q, %v", name, firstFeatures(v, 1), v.ReplacementReason, err)
		}
	}
}

func truncate(t *testing.T, path, text string) {
	t.Helper()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString(text)
		if closed := f.Close(); err == nil {
			err = closed
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	err := os.WriteFile(path+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func replaceLink(t *testing.T, path, text string) {
	t.Helper()
	err := os.WriteFile(path+".day", []byte(text), 0o600)
	if err == nil {
		err = os.Symlink(path+".day", path+".link")
	}
	if err == nil {
		err = os.Rename(path+".link", path)
	}
	if err != nil {
		t.Skip("this system has no links: ", err)
	}
}

// TestPatternWithoutFiles checks the error for a pattern without files, and the rows after a file has appeared.
func TestPatternWithoutFiles(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(&data.Config{CSVPath: filepath.Join(dir, "log-*.csv"), TimeColumn: "time"})
	if err != nil {
		t.Fatal(err)
	}
	r := s.OpenRows(data.RowQuery{Features: []string{"temp"}, Target: "hum"})
	for _, probe := range []func() error{s.Probe, func() error { _, err := r.Snapshot(); return err }} {
		if err := probe(); err == nil || !strings.Contains(err.Error(), "log-*.csv: no file matches") {
			t.Error(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "log-1.csv"), []byte(dayFile(1, 3)), 0o600); err != nil {
		t.Fatal(err)
	}
	if v, err := r.Snapshot(); err != nil || v.Rows.Len() != 3 || s.Probe() != nil {
		t.Error(v, err)
	}
	// the path of a single file that looks like a pattern
	named := data.Config{CSVPath: filepath.Join(dir, "export[1].csv")}
	if err := os.WriteFile(named.CSVPath, []byte(dayFile(1, 2)), 0o600); err != nil {
		t.Fatal(err)
	}
	var problems spec.ProblemList
	if s, err := Open(&named); err != nil || s.Probe() != nil {
		t.Errorf("%s: %v", named.CSVPath, err)
	}
	if CheckConfig(&named, &problems, "data"); problems.Err() != nil {
		t.Error(problems.Err())
	}
	if CheckConfig(&data.Config{CSVPath: "log-[.csv"}, &problems, "data"); problems.Err() == nil ||
		!strings.Contains(fmt.Sprint(problems.Err()), "data.csv") {
		t.Error("a pattern that is none: ", problems.Err())
	}
}
