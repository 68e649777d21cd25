package sources

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/spec"
)

// TestRecords checks lines that were damaged by programs, people and power cuts. An invalid line must not affect other
// lines.
func TestRecords(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want []string // records below the header, with fields joined by a bar; errors start with "!"
	}{
		"plain":                       {"a,b\n1,2\n3,4", []string{"1|2", "3|4"}},
		"quotes":                      {"a,b\n\"1\",\"x, \"\"y\"\"\"\n \"3\" ,4\n", []string{`1|x, "y"`, "3|4"}},
		"line breaks in quotes":       {"a,b\n1,\"x\ny\nz\"\n3,4\n", []string{"1|x\ny\nz", "3|4"}},
		"an inch":                     {"a,b\n1,3/4\" valve\n3,4\n", []string{`1|3/4" valve`, "3|4"}},
		"from inch to inch":           {"a,b\n1,\"27\" to 31\"\n3,4\n", []string{`1|27" to 31`, "3|4"}},
		"a name":                      {"a,b\n1,O\"Neill\n3,4\n", []string{`1|O"Neill`, "3|4"}},
		"text behind a quote":         {"a,b,c\n1,\"note\" and more,5\n3,4,5\n", []string{`1|"note" and more|5`, "3|4|5"}},
		"a quote that nothing closes": {"a,b\n1,\"x\n3,4\n5,6\n", []string{`1|"x`, "3|4", "5|6"}},
		"two of them":                 {"a,b\n1,\"x\n3,4\n5,\"y\n7,8\n", []string{`1|"x`, "3|4", `5|"y`, "7|8"}},
		"half a line": {"a,b\n1\n3,4\n", []string{`!line 2: found 1 field, but the header has 2: "1"`,
			"3|4"}},
		"two lines in one": {"a,b\n1,21,2\n3,4\n", []string{`!line 2: found 3 fields, but the header has 2: ` +
			`"1,21,2"`, "3|4"}},
		"a column more": {"a,b\n1,2\n3,4,5\n6,7,8\n", []string{"1|2", "3|4|5", "6|7|8"}},
		"a column more and half lines": {"a,b\n0,0\n1,2,5\n3,4,5\n6,7\n8,9,5\n", []string{"0|0", "1|2|5", "3|4|5",
			`!line 5: found 2 fields, but the header has 3: "6,7"`, "8|9|5"}},
		"two fields with a delimiter": {"a,b\n0,0\n1,2,5\n3,4,5\n6,7\n8,9\n", []string{"0|0",
			`!line 3: found 3 fields, but the header has 2: ` +
				`"1,2,5"`, `!line 4: found 3 fields, but the header has 2: "3,4,5"`,
			"6|7", "8|9"}},
		"a column more, not always filled": {"a,b\n0,0\n1,2,5\n3,4,\n5,6,\n7,8,9\n", []string{"0|0", "1|2|5", "3|4|",
			"5|6|", "7|8|9"}},
		"a column more in the last line": {"a,b\n0,0\n1,2,5\n", []string{"0|0"}},
		"decimal commas": {"a,b\n1,5,2,5\n3,5,4,5\n", []string{
			`!line 2: found 4 fields, but the header has 2: "1,5,2,5"`,
			`!line 3: found 4 fields, but the header has 2: "3,5,4,5"`}},
		"a comma at each end":         {"a,b,\n1,2,\n3,4,\n", []string{"1|2", "3|4"}},
		"a comma at each end but one": {"a,b\n1,2,\n3,4,,\n", []string{"1|2", "3|4"}},
		"empty lines":                 {"a,b\n\n1,2\n,\n \n\r\n3,4\n", []string{"1|2", "3|4"}},
		"zeros before a line":         {"a,b\n1,2\n\x00\x00\x003,4\n", []string{"1|2", "3|4"}},
		"zeros behind half a line": {"a,b\n1,2\n3,\x00\x00\n5,6\n", []string{"1|2",
			`!line 3: the line is truncated and followed by NUL bytes: "3,"`, "5|6"}},
		"carriage returns in a part": {"a,b\n1,2\n3,4\r5,6\r7,8\n9,10\r\n11,12\r", []string{"1|2", "3|4", "5|6", "7|8",
			"9|10", "11|12"}},
		"a line that is too long": {"a,b\n1," + strings.Repeat("x", maxLineBytes) + "\n3,4\n",
			[]string{"!line 2: the line is longer than 1048576 bytes", "3|4"}},
		"a long one in quotes": {"a,b\n1,\"x\n" + strings.Repeat("x", maxLineBytes+1) + "\n3,4\n",
			[]string{`1|"x`, "!line 3: the line is longer than 1048576 bytes", "3|4"}},
		"Latin-1":             {"a,b\n1,\xb0C\n3,4\n", []string{"1|°C", "3|4"}},
		"UTF-8":               {"\ufeffa,b\n1,°C\n3,4\n", []string{"1|°C", "3|4"}},
		"a name of two lines": {"a,\"b\n(°C)\"\n1,2\n", []string{"1|2"}},
		"sep":                 {"sep=;\na;b\n1;2\n", []string{"1|2"}},
		"sep with a mark":     {"\ufeffsep=\t\r\na\tb\r\n1\t2\r\n", []string{"1|2"}},
		"a column named sep":  {"sep=a,b\n1,2\n", []string{"1|2"}},
	} {
		for how, text := range map[string]io.Reader{"at once": strings.NewReader(tt.text),
			"byte by byte": iotest.OneByteReader(strings.NewReader(tt.text))} {
			d := csvDialect{}
			r := d.newRecordReader(text, nil)
			header, err := r.readHeader("f.csv")
			if err != nil || len(header) != strings.Count(strings.SplitN(tt.want[len(tt.want)-1], "\n", 2)[0], "|")+1 &&
				!strings.Contains(name, "more") && !strings.Contains(name, "decimal") {
				t.Errorf("%s, %s: header %q, %v", name, how, header, err)
			}
			var got []string
			for {
				record, err := r.Read()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					got = append(got, "!"+err.Error())
				} else {
					got = append(got, strings.Join(record, "|"))
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s, %s: %.200q, want %.200q", name, how, got, tt.want)
			}
		}
	}
}

// TestUnitsBelowTheNames checks that lines of units directly below the header are not counted as unusable rows. The
// same line further below the header must be counted.
func TestUnitsBelowTheNames(t *testing.T) {
	for text, bad := range map[string]int{
		"t,x,y\nTS,°C,\n,Avg,Avg\n60,1,2\n120,2,3\n180,4,5\n240,5,6\n300,6,7\n": 0,
		"t,x,y\n60,1,2\n120,2,3\n180,4,5\n240,5,6\n300,6,7\nTS,°C,%\n":          1,
		// The first line has a time but lacks a value.
		"t,x,y\n60,NA,2\n120,2,3\n180,4,5\n240,5,6\n300,6,7\n": 1,
	} {
		_, r := csvAt(t, "d.csv", text, data.Config{TimeColumn: "t"})
		_, err := r.Snapshot()
		if report := r.(data.QualityReporter).QualityReport(); err != nil || report.BadRows != bad {
			t.Errorf("%q: %d cannot be used, want %d; %v", text, report.BadRows, bad, err)
		}
	}
}

// TestRangeAndMissingValues checks that numbers in data.missing_values are missing values and that values outside
// data.range are rejected, in rows and in readings.
func TestRangeAndMissingValues(t *testing.T) {
	var lines []string
	for k := range 60 {
		v := "0.5"
		switch k {
		case 20, 21:
			v = "-9999.0"
		case 40:
			v = "850"
		}
		at := harnessStart.Add(time.Duration(k) * time.Hour).Format(time.RFC3339)
		lines = append(lines, fmt.Sprintf("%s,%s,%d", at, v, k))
	}
	text := "time,rms,k\n" + strings.Join(lines, "\n") + "\n"
	recipe := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Hour},
		Inputs: []spec.InputSeries{{Name: "rms"}, {Name: "k"}}}.WithDefaults()
	readings := data.RowQuery{Features: []string{"rms"}, Target: "k", Recipe: &recipe}
	for _, w := range []data.RowQuery{{Features: []string{"rms"}, Target: "k"}, readings} {
		h := &csvHarness{path: t.TempDir() + "/d.csv"}
		h.put(t, text)
		s, err := Open(&data.Config{CSVPath: h.path, TimeColumn: "time",
			MissingValues: []data.UnquotedYAMLText{"-9999"},
			RangeByColumn: map[string][]float64{"rms": {0, 1}}})
		if err != nil {
			t.Fatal(err)
		}
		r := s.OpenRows(w)
		v, err := r.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		report := r.(data.QualityReporter).QualityReport()
		rms := report.EnsureColumn("rms")
		if rms.Unused[grid.ReasonMissing] != 2 || rms.Unused[grid.ReasonOutOfRange] != 1 || v.Rows.Len() < 50 ||
			slices.ContainsFunc(v.Rows.All().X, func(x float32) bool { return x != 0.5 }) {
			t.Errorf("%v: %v", rms, v.Rows.All().X)
		}
	}
}

// TestOutliersAreReported checks that the value −9999 in a few rows is reported with column, count and value, for rows
// and for readings. It must not be reported if data.missing_values contains it.
func TestOutliersAreReported(t *testing.T) {
	var lines []string
	for k := range 200 {
		v := fmt.Sprintf("0.%02d", k%50)
		if k == 70 || k == 71 {
			v = "-9999"
		}
		at := harnessStart.Add(time.Duration(k) * time.Hour).Format(time.RFC3339)
		lines = append(lines, fmt.Sprintf("%s,%s,%d", at, v, k%7))
	}
	text := "time,rms,k\n" + strings.Join(lines, "\n") + "\n"
	recipe := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Hour},
		Inputs: []spec.InputSeries{{Name: "rms"}, {Name: "k"}}}.WithDefaults()
	readings := data.RowQuery{Features: []string{"rms"}, Target: "k", Recipe: &recipe}
	for _, w := range []data.RowQuery{{Features: []string{"rms"}, Target: "k"}, readings} {
		for _, declared := range [][]data.UnquotedYAMLText{nil, {"-9999"}} {
			h := &csvHarness{path: filepath.Join(t.TempDir(), "d.csv")}
			h.put(t, text)
			s, err := Open(&data.Config{CSVPath: h.path, TimeColumn: "time", MissingValues: declared})
			if err != nil {
				t.Fatal(err)
			}
			rows := s.OpenRows(w)
			if _, err := rows.Snapshot(); err != nil {
				t.Fatal(err)
			}
			troubles := rows.(data.QualityReporter).QualityReport().Troubles
			if declared != nil {
				if len(troubles) > 0 {
					t.Errorf("declared: %+v", troubles)
				}
				continue
			}
			if len(troubles) != 1 || troubles[0].Kind != data.TroubleOutlier ||
				!strings.Contains(troubles[0].Text, `column "rms": 2 of `) ||
				!strings.Contains(troubles[0].Text, "such as -9999, while the others range from 0 to 0.49") {
				t.Errorf("%+v", troubles)
			}
		}
	}
}
