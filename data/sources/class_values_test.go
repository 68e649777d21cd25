package sources

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/survey"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
)

// classCells contains cells and JSON values, each with the class that it represents, or "" if it represents no class.
var classCells = []struct {
	cell    string // cell with a decimal point
	comma   string // cell with a decimal comma; empty means the same text
	json    string
	classes []string
	class   string
}{
	{"1", "", `1`, []string{"0", "1", "10"}, "1"},
	{"1.0", "1,0", `1.0`, []string{"0", "1", "10"}, "1"},
	{"1.0", "1,0", `"1.0"`, []string{"0", "1", "10"}, "1"},
	{"0.0", "0,0", `0.0`, []string{"0", "1", "10"}, "0"},
	{"010.00", "010,00", `"010.00"`, []string{"0", "1", "10"}, "10"},
	{"TRUE", "", `"TRUE"`, []string{"0", "1", "10"}, "1"},
	{"false", "", `false`, []string{"0", "1", "10"}, "0"},
	{"True", "", `"True"`, []string{"false", "true"}, "true"},
	{"FALSE", "", `"FALSE"`, []string{"false", "true"}, "false"},
	{"1", "", `1`, []string{"false", "true"}, "true"},
	{"0.0", "0,0", `0.0`, []string{"false", "true"}, "false"},
	{"1.5", "1,5", `1.5`, []string{"1", "1.5"}, "1.5"},
	{"1,5", "1,5", `"1,5"`, []string{"1", "1,5"}, "1,5"},
	{"2.0", "2,0", `2.0`, []string{"0", "1", "10"}, ""},
	{"yes", "", `"yes"`, []string{"0", "1", "false", "true"}, ""},
}

// TestClassCells checks that a value represents the same class in a file with either decimal separator, in the survey
// of the file, and in payloads.
func TestClassCells(t *testing.T) {
	for _, tt := range classCells {
		want := everyMinute("")
		r := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Minute}, Inputs: []spec.InputSeries{
			{Name: "temp", Classes: tt.classes}, {Name: "hum"}}}.WithDefaults()
		want.Recipe, want.Features, want.Target = &r, nil, ""
		for _, class := range tt.classes {
			want.Features = append(want.Features, "temp = "+class)
		}
		check := func(where string, view data.RowSnapshot, report data.QualityReport) {
			t.Helper()
			var x []float32
			if view.Rows != nil {
				x = view.Rows.All().X
			}
			c := report.EnsureColumn("temp")
			if tt.class == "" {
				if len(x) > 0 || c.Unused[grid.ReasonUnknownClass] == 0 {
					t.Errorf("%s: %+v has rows %v, %v; want an unknown class", where, tt, x, report)
				}
				return
			}
			if len(x) == 0 {
				t.Errorf("%s: %+v has no row, %v", where, tt, report)
			}
			for i, class := range tt.classes[:min(len(x), len(tt.classes))] {
				if (x[i] == 1) != (class == tt.class) {
					t.Errorf("%s: %+v has the row %v of %q", where, tt, x, tt.classes)
				}
			}
		}
		for _, comma := range []bool{false, true} {
			c := data.Config{CSVPath: filepath.Join(t.TempDir(), "d.csv"), TimeColumn: "time", Delimiter: ";"}
			cell := tt.cell
			if comma {
				if c.DecimalSeparator = ","; tt.comma != "" {
					cell = tt.comma
				}
			}
			text := "time;temp;hum\n"
			for _, minute := range []string{"00", "01", "02", "03"} {
				text += "2026-03-01T00:" + minute + ":00Z;" + cell + ";5\n"
			}
			if err := os.WriteFile(c.CSVPath, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			stored, err := OpenStoredSource(&c, store.LocalDisk, "")
			if err != nil {
				t.Fatal(err)
			}
			made, _ := survey.DescribeRows(stored, want)
			check("file", made.Snapshot, made.QualityReport)
			used := uint64(4)
			if tt.class == "" {
				used = 0
			}
			if s := stored.Survey(&want); s.Columns[0].Used != used || s.Columns[0].Used+s.Columns[0].Unused != 4 {
				t.Errorf("%+v, comma %t: the survey has %+v, want %d values used", tt, comma, s.Columns[0], used)
			}
		}
		synctest.Test(t, func(t *testing.T) {
			l := newLiveHarness(t, data.Config{}, want, map[string]string{"temp": "t", "hum": "h"})
			defer func() { l.end() }()
			for range 4 {
				pass(time.Minute)
				l.deliver("esp", `{"t":`+tt.json+`,"h":5}`)
			}
			view, report, _ := l.compareWithCheck()
			check("stream", view, report)
		})
	}
}
