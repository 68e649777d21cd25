package sources

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/survey"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// surveyText surveys a file with the columns a and y, and optionally a time.
func surveyText(t *testing.T, text string, c data.Config) *survey.SourceSurvey {
	t.Helper()
	c.CSVPath = write(t, "d.csv", text)
	return storedAt(t, &c, "").Survey(&data.RowQuery{Features: []string{"a"}, Target: "y"})
}

// timesFile returns the text of a file with the given times in column t, where y is 1 and a is 0 in every line.
func timesFile(times ...string) string {
	return "t;a;y\n" + strings.Join(times, ";0;1\n") + ";0;1\n"
}

// TestTimesWithAnAbbreviation checks that the advice for zone abbreviations contains the time zone and, unless it is
// set, the layout. With the advice applied, the times must be correct.
func TestTimesWithAnAbbreviation(t *testing.T) {
	text := timesFile("Sun Mar  1 00:00:00 CET 2026", "Sun Mar  1 01:00:00 CET 2026")
	c := data.Config{TimeColumn: "t", Delimiter: ";"}
	const zone = `set data.time_zone to a zone in which the abbreviation "CET" is used, such as "Europe/Berlin"`
	s := surveyText(t, text, c)
	want := `set data.time_format to "Mon Jan _2 15:04:05 MST 2006", and ` + zone
	if f := faultsOf(s, "t", grid.ReasonBadTime); len(s.ConfigChanges) > 0 || f.Remedy != want {
		t.Errorf("changes %+v, remedy %q, want %q", s.ConfigChanges, f.Remedy, want)
	}
	c.TimeFormat = time.UnixDate
	if f := faultsOf(surveyText(t, text, c), "t", grid.ReasonBadTime); f.Count != 2 || f.Remedy != zone {
		t.Errorf("with the layout: %+v, want %q", f, zone)
	}
	c.TimeZone = "Europe/Berlin"
	s = surveyText(t, text, c)
	if first := time.Date(2026, 2, 28, 23, 0, 0, 0, time.UTC); len(s.Faults) > 0 || !s.EarliestTime.Equal(first) {
		t.Errorf("with the zone: first time %v, want %v; %+v", s.EarliestTime, first, s.Faults)
	}
}

// TestLayoutsOfTheGuess checks the time layouts that are suggested for various texts.
func TestLayoutsOfTheGuess(t *testing.T) {
	for text, want := range map[string]string{
		"2026-03-01 00:00:00+0100":     "2006-01-02 15:04:05-0700",
		"2026-03-01T00:00:00.000+0100": "2006-01-02T15:04:05-0700",
		"2026-03-01 00:00:00+01":       "2006-01-02 15:04:05-07",
		"2026-03-01 00:00:00 +01:00":   "2006-01-02 15:04:05 -07:00",
		"2026-03-01 00:00:00 UTC":      "2006-01-02 15:04:05 MST",
		"01.03.26 00:00":               "02.01.06 15:04",
		"20260301":                     "20060102",
		"202603010000":                 "200601021504",
		"20260301000000":               "20060102150405",
	} {
		format, why := guessTimeFormat([]string{text}, nil)
		at, err := parseTime(t, format, "", text)
		noZone := !strings.Contains(text, "+") && !strings.Contains(text, "UTC")
		if format != want || err != nil || !strings.HasPrefix(at, "2026-0") ||
			strings.Contains(why, "data.time_zone") != noZone {
			t.Errorf("%s: format %q (%s), time %s, error %v; want %q", text, format, why, at, err, want)
		}
	}
}

// TestTimesBefore1990 checks numeric times that would be before 1990. Either another time format or a fault with advice
// is expected. The times can still be used.
func TestTimesBefore1990(t *testing.T) {
	for _, tt := range []struct {
		times  []string
		format string // configured format
		change string
		mend   string
	}{
		{[]string{"20260301", "20260302"}, "", "20060102", ""},
		{[]string{"20260301", "20260302", "tomorrow"}, "", "20060102", ""},
		{[]string{"20260301", "20260302"}, "unix", "20060102", ""},
		{[]string{"202603010000", "202603010100"}, "", "200601021504", ""},
		{[]string{"202603010000", "202603010100"}, "unix_ms", "200601021504", ""},
		{[]string{"20260301000000", "20260301010000"}, "unix_us", "20060102150405", ""},
		{[]string{"46082.00000", "46082.04167"}, "", "", "Excel day numbers (the first is 2026-03-01), export"},
		{[]string{"32874", "73415"}, "", "", "Excel day numbers (the first is 1990-01-01)"},
		{[]string{"32873", "32874"}, "", "", "correct data.time_format"},
		{[]string{"0", "0.5", "3600"}, "", "", "times since the start of an experiment need no change"},
		{[]string{"0", "20260302"}, "", "", "correct data.time_format"},
		{[]string{"1772323200", "1772326800"}, "", "", ""},
		{[]string{"1975-03-01T00:00:00Z", "1975-03-01T01:00:00Z"}, "", "", ""},
		{[]string{"1975-03-01 00:00", "1975-03-01 01:00"}, "2006-01-02 15:04", "", ""},
		{[]string{"600000000", "1772326800"}, "", "", ""},
	} {
		s := surveyText(t, timesFile(tt.times...), data.Config{TimeColumn: "t", Delimiter: ";", TimeFormat: tt.format})
		c := data.Config{TimeFormat: tt.format}
		if got := survey.ApplyConfigChanges(&c,
			s.ConfigChanges).TimeFormat; tt.change != "" && got != tt.change || tt.change == "" &&
			len(s.ConfigChanges) > 0 {
			t.Errorf("%+v: changes %+v", tt, s.ConfigChanges)
		}
		f := faultsOf(s, "t", ReasonEarlyTimes)
		if f.Count != min(len(tt.mend), 1) || !strings.Contains(f.Remedy, tt.mend) {
			t.Errorf("%+v: fault %+v", tt, f)
		}
		if tt.mend != "" && (s.Columns[0].Used != uint64(len(tt.times)) || !strings.Contains(f.FirstFaults[0].Problem,
			"if the times are read in seconds since 1970, they range from 1970-01-01T")) {
			t.Errorf("%+v: %d values used, %q", tt, s.Columns[0].Used, f.FirstFaults[0].Problem)
		}
	}
}

// TestTimesBeforeALaterHeader checks a file whose second header moves the time to another column.
func TestTimesBeforeALaterHeader(t *testing.T) {
	s := surveyText(t, "t;a;y\n0;0;1\n60;0;1\na;y;b;t\n0;1;7;120\n0;1;7;180\n", data.Config{TimeColumn: "t",
		Delimiter: ";"})
	if f := faultsOf(s, "t", ReasonEarlyTimes); f.Count != 1 {
		t.Errorf("%+v, times from %v to %v", s.Faults, s.EarliestTime, s.LatestTime)
	}
}

// TestMalformedRemedies checks the remedies for lines that cannot be parsed.
func TestMalformedRemedies(t *testing.T) {
	const good = "t,a,b,y\n1,2,3,4\n2,2,3,4\n3,2,3,4\n4,2,3,4\n"
	for text, want := range map[string]string{
		"t,a,b,y\n1,20,5,3,7,1\n2,20,6,3,8,1\n":      "decimal comma",
		"t,a,b,y\n1,20,5,3,0\n2,20,6,3,1\n":          "decimal comma",
		good + "5,2\x00\x00\n":                       "truncated by a power failure",
		good + "5,2,3\n":                             "write a delimiter for each empty cell",
		good + "5,2,ok, or so,4\n6,2,3,4\n7,2,3,4\n": "data.comment",
		good + "5,9000,2,3,4\n6,9001,2,3,4\n":        addedFieldsAdvice,
	} {
		if f := faultsOf(surveyText(t, text, data.Config{}), "",
			grid.ReasonMalformed); f.Count == 0 || !strings.Contains(f.Remedy,
			want) {
			t.Errorf("%q: %+v, want %q", text, f, want)
		}
	}
}

// TestThousands checks that thousands separators are distinguished from decimal separators.
func TestThousands(t *testing.T) {
	const advice = "contain thousands separators: export the file without them"
	for _, tt := range []struct {
		name, cells string // name of the case, and cells of column a
		config      data.Config
		// change is the expected change of the configuration. Its Reason contains only a part of the expected reason.
		change survey.SuggestedConfigChange
		fault  data.UnusedReason // expected reason of the fault of the column
		mend   string
		used   uint64
	}{
		{"beside whole numbers", "900 980 1,000 3,280", data.Config{Delimiter: ";"}, survey.SuggestedConfigChange{Reason: `"1,000" ` + advice}, "",
			"", 4},
		{"with a decimal comma set", "900 980 1,000 3,280", data.Config{Delimiter: ";", DecimalSeparator: ","},
			survey.SuggestedConfigChange{},
			ReasonThousandsSeparator,
			advice, 4},
		{"with the default decimal point", "900 980 1.000 3.280", data.Config{Delimiter: ";"},
			survey.SuggestedConfigChange{},
			ReasonThousandsSeparator,
			advice,
			4},
		{"points with a decimal comma set", "900 980 1.000 3.280", data.Config{Delimiter: ";", DecimalSeparator: ","},
			survey.SuggestedConfigChange{Reason: `"1.000" ` + advice}, "", "", 4},
		{"two groups", "1,000,000 2,000,000 2,500", data.Config{Delimiter: ";"}, survey.SuggestedConfigChange{},
			grid.ReasonNotANumber, advice, 0},
		{"mostly one group", "1,500 2,000,000 2,500 3,500", data.Config{Delimiter: ";"},
			survey.SuggestedConfigChange{Reason: advice}, "", "",
			4},
		{"quoted between commas", `"1,000" "1,001" "1,002"`, data.Config{}, survey.SuggestedConfigChange{Reason: advice}, "", "", 3},
		{"quoted beside points", `900.5 950.5 "1,000"`, data.Config{}, survey.SuggestedConfigChange{}, grid.ReasonNotANumber, advice, 2},
		{"with a fraction", "900,5 950,5 1.000,5", data.Config{Delimiter: ";", DecimalSeparator: ","},
			survey.SuggestedConfigChange{},
			grid.ReasonNotANumber,
			advice, 2},
		{"with a fraction, all", "1.000,5 1.001,5", data.Config{Delimiter: ";"}, survey.SuggestedConfigChange{},
			grid.ReasonNotANumber,
			advice + `, and set data.decimal to ","`, 0},
		{"apostrophes", "900.5 1'000.5", data.Config{Delimiter: ";"}, survey.SuggestedConfigChange{},
			grid.ReasonNotANumber,
			advice,
			1},
		{"three decimals", "21,125 21,250 980,375", data.Config{Delimiter: ";"},
			survey.SuggestedConfigChange{Key: "decimal",
				Value:  ",",
				Reason: `if "21,125" means 21125, export the file without thousands separators instead`}, "", "", 3},
		{"three decimals below 1", "0,125 1,250 980", data.Config{Delimiter: ";"},
			survey.SuggestedConfigChange{Key: "decimal",
				Value:  ",",
				Reason: "the numbers have a decimal comma"}, "", "", 3},
		{"other decimals", "900 1,000 1,5", data.Config{Delimiter: ";"}, survey.SuggestedConfigChange{Key: "decimal",
			Value:  ",",
			Reason: "the numbers have a decimal comma"}, "", "", 3},
		{"whole numbers above 1000", "980 1020 1,125", data.Config{Delimiter: ";", DecimalSeparator: ","},
			survey.SuggestedConfigChange{}, "", "", 3},
		{"decimal points", "980 0.125 1.250", data.Config{Delimiter: ";"}, survey.SuggestedConfigChange{}, "", "", 3},
		{"three decimal points", "1.125 1.250", data.Config{Delimiter: ";"}, survey.SuggestedConfigChange{}, "", "", 2},
	} {
		cells, delimiter := strings.Fields(tt.cells), tt.config.Delimiter
		if delimiter == "" {
			delimiter = ","
		}
		text := "a" + delimiter + "y\n" + strings.Join(cells, delimiter+"1\n") + delimiter + "1\n"
		s := surveyText(t, text, tt.config)
		var change survey.SuggestedConfigChange
		if len(s.ConfigChanges) > 0 {
			change = s.ConfigChanges[0]
		}
		if len(s.ConfigChanges) > 1 || change.Key != tt.change.Key || change.Value != tt.change.Value ||
			!strings.Contains(change.Reason, tt.change.Reason) || tt.change.Reason == "" && change.Reason != "" {
			t.Errorf("%s: changes %+v, want %+v", tt.name, s.ConfigChanges, tt.change)
		}
		for _, f := range s.Faults {
			if f.Reason != tt.fault || !strings.Contains(f.Remedy, tt.mend) {
				t.Errorf("%s: fault %+v, want %s, %q", tt.name, f, tt.fault, tt.mend)
			}
		}
		if tt.fault != "" && len(s.Faults) == 0 || s.Columns[0].Used != tt.used {
			t.Errorf("%s: %d faults, %d values used, want %d", tt.name, len(s.Faults), s.Columns[0].Used, tt.used)
		}
		if change.Key == "" && change.Reason != "" && s.Columns[0].Max < 1000 {
			t.Errorf("%s: without the separators the largest number is %v", tt.name, s.Columns[0].Max)
		}
	}
}

// TestDelimiterOfSeveralFiles checks that the survey does not suggest the configured delimiter again for a file that
// lacks the columns.
func TestDelimiterOfSeveralFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"1.csv": "a;y\n1;2\n", "2.csv": "b\n1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := data.Config{CSVPath: dir, Delimiter: ";"}
	if s := storedAt(t, &c, "").Survey(&data.RowQuery{Features: []string{"a"}, Target: "y"}); len(s.ConfigChanges) > 0 {
		t.Errorf("changes %+v", s.ConfigChanges)
	}
}

// TestThousandsOfAPart checks that thousands separators are detected from the selected lines of all files, and that
// class texts are ignored.
func TestThousandsOfAPart(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"0.csv": "b\n1,5\n", "1.csv": "m;a;y\nx;900;1\nz;0,5;1\n",
		"2.csv": "y;m;a\n1;x;1,000\n1;x;1,001\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := data.Config{CSVPath: dir, Delimiter: ";", RequiredTextByColumn: map[string]string{"m": "x"}}
	s := storedAt(t, &c, "").Survey(&data.RowQuery{Features: []string{"a"}, Target: "y"})
	if len(s.ConfigChanges) != 1 || !strings.Contains(s.ConfigChanges[0].Reason,
		"thousands") || s.Columns[0].Max != 1001 {
		t.Errorf("%+v, %+v", s.ConfigChanges, s.Columns)
	}
	recipe := spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Hour}, Inputs: []spec.InputSeries{{Name: "a"},
		{Name: "wd", Classes: []string{"1,5"}}}}.WithDefaults()
	c = data.Config{CSVPath: write(t, "d.csv",
		"t;a;wd\n1772323200;900;1,5\n1772323300;1,000;1,5\n1772323400;1,001;1,5\n"),
		TimeColumn: "t", Delimiter: ";", DecimalSeparator: ","}
	s = storedAt(t, &c, "").Survey(&data.RowQuery{Features: []string{"a", "wd = 1,5"}, Target: "a in 1h",
		Recipe: &recipe})
	if f := faultsOf(s, "a", ReasonThousandsSeparator); f.Count != 1 || !strings.HasPrefix(f.FirstFaults[0].Problem, `"1,000" is read as 1 (`) {
		t.Errorf("%+v", s.Faults)
	}
}

// TestRemedies checks that the survey gives suitable advice for each fault.
func TestRemedies(t *testing.T) {
	rows := strings.Repeat("2026-03-01T00:00:00Z;1;1\n", 20)
	numbers := func(cells ...string) string {
		return "t;a;y\n" + rows + "2026-03-01T00:00:00Z;" + strings.Join(cells, ";1\n2026-03-01T00:00:00Z;") + ";1\n"
	}
	timed := data.Config{TimeColumn: "t", Delimiter: ";"}
	with := func(change func(c *data.Config)) data.Config {
		c := timed
		change(&c)
		return c
	}
	for _, tt := range []struct {
		name, text string
		config     data.Config
		column     string
		reason     data.UnusedReason
		mend       string
	}{
		{"a word", numbers("OL", "OL"), timed, "a", grid.ReasonNotANumber,
			`if "OL" means a missing value, add it to data.missing_values: ["OL"]`},
		{"several words", numbers("#DIV/0!", "OL", "E4"), timed, "a", grid.ReasonNotANumber,
			`if these texts mean missing values, add them to data.missing_values: ["#DIV/0!", "OL", "E4"]`},
		{"a unit and a word", numbers("21.5 C", "OL"), timed, "a", grid.ReasonNotANumber,
			`write "21.5 C" as a plain number, without a unit or other characters; if "OL" means a missing ` +
				`value, add it to data.missing_values: ["OL"]`},
		{"a minus sign", numbers("\u22125"), timed, "a", grid.ReasonNotANumber, "write \"\u22125\" as a plain number"},
		{"an apostrophe", numbers("'12.5"), timed, "a", grid.ReasonNotANumber, `write "'12.5" as a plain number`},
		{"the other decimal", numbers("1,5", "OL"), timed, "a", grid.ReasonNotANumber,
			`write "1,5" and the other numbers with the same decimal separator; if "OL"`},
		{"thousands", numbers("1.5", "2.5", "1,500"), timed, "a", grid.ReasonNotANumber,
			`numbers such as "1,500" contain thousands`},
		{"a long text", numbers(strings.Repeat("x", 40)), timed, "a", grid.ReasonNotANumber,
			"correct these cells, or leave them empty"},
		{"no numbers", "a;y\nred;1\nblue;2\n", data.Config{Delimiter: ";"}, "a", grid.ReasonNotANumber,
			"the column contains no numbers: select another column in data.columns"},
		{"infinite", numbers("inf"), timed, "a", grid.ReasonNotFinite,
			`if "inf" means a missing value, add it to data.missing_values: ["inf"]`},
		{"missing", numbers(""), timed, "a", grid.ReasonMissing,
			"to fill in the value, set data.missing to last or mean"},
		{"missing, refused", numbers(""), with(func(c *data.Config) { c.MissingValuePolicy = grid.FillRefuse }), "a",
			grid.ReasonMissing,
			"set data.missing to skip"},
		{"missing, filled in", numbers(""), with(func(c *data.Config) { c.MissingValuePolicy = grid.FillMean }), "a",
			grid.ReasonMissing,
			"data.missing is mean: the value is filled in"},
		{"a missing target", "a;y\n1;\n1;1\n", data.Config{Delimiter: ";"}, "y", grid.ReasonMissing,
			"a target is never filled in"},
		{"out of range", numbers("9"), with(func(c *data.Config) {
			c.RangeByColumn = map[string][]float64{"a": {0,
				5}}
		}), "a",
			grid.ReasonOutOfRange, `only these values are rejected; if they are correct, widen data.range: {"a": [0, ` +
				`5]}`},
		{"some times", "t;a;y\n" + rows + "05.03.2026 04:00;1;1\n", timed, "t", grid.ReasonBadTime,
			"only these lines are skipped; to use them, write all times in one format and time zone"},
		{"no times", "t;a;y\n;1;1\n;1;1\n", timed, "t", grid.ReasonBadTime,
			"if another column contains the time, set data.time"},
		{"unknown times", "t;a;y\nnoon;1;1\n", timed, "t", grid.ReasonBadTime,
			"set data.time_format to a Go time layout"},
		{"month first", "t;a;y\n03/01/2026 00:00;1;1\n03/12/2026 00:00;1;1\n03/13/2026 00:00;1;1\n",
			with(func(c *data.Config) { c.TimeFormat = "02/01/2006 15:04" }), "t", grid.ReasonBadTime,
			`if day and month are swapped in all lines, set data.time_format to "01/02/2006 15:04"`},
		{"where", numbers("1"), with(func(c *data.Config) { c.RequiredTextByColumn = map[string]string{"y": "2"} }), "",
			survey.ReasonNoColumn,
			"correct data.where"},
		{"an empty file", "", timed, "", survey.ReasonUnreadable, "with the column names in its first line"},
		{"gzip", zip(t, rows), timed, "", survey.ReasonUnreadable, "rename the file to d.csv.gz"},
	} {
		s := surveyText(t, tt.text, tt.config)
		if f := faultsOf(s, tt.column, tt.reason); !strings.Contains(f.Remedy, tt.mend) || f.Count == 0 {
			t.Errorf("%s: remedy %q, want %q", tt.name, f.Remedy, tt.mend)
		}
		for _, f := range s.Faults {
			if f.Remedy == "" {
				t.Errorf("%s: no remedy for %+v", tt.name, f)
			}
		}
	}
	w := airWant()
	c := data.Config{CSVPath: write(t, "d.csv", "t,temp,wd\n1772323200,70,N\n1772323200,1,X\n"), TimeColumn: "t"}
	s := storedAt(t, &c, "").Survey(&w)
	if got := faultsOf(s, "temp", grid.ReasonOutOfRange).Remedy; !strings.Contains(got, "the task accepts -50 to 60") {
		t.Errorf("out of the task's range: %q", got)
	}
	if got := faultsOf(s, "wd", grid.ReasonUnknownClass).Remedy; got != `the known classes are "N", "S"` {
		t.Errorf("unknown class: %q", got)
	}
	c.CSVPath = filepath.Join(t.TempDir(), "none.csv")
	if got := faultsOf(storedAt(t, &c, "").Survey(&w), "", survey.ReasonUnreadable).Remedy; !strings.Contains(got,
		"correct data.csv") {
		t.Errorf("no file: %q", got)
	}
	c = data.Config{CSVPath: write(t, "c.csv.gz", zip(t, sites)[:40])}
	s = storedAt(t, &c, "").Survey(&data.RowQuery{Features: []string{"x"}, Target: "y"})
	if got := faultsOf(s, "", survey.ReasonUnreadable).Remedy; !strings.Contains(got, "export the file again") &&
		!strings.Contains(got, "copy the file again") {
		t.Errorf("a file that is cut off: %q, %+v", got, s.Faults)
	}
}

// TestRemedyIsFollowed checks that texts are missing values after they were added to data.missing_values, as the survey
// advised.
func TestRemedyIsFollowed(t *testing.T) {
	text := "a;y\n1;1\n" + strings.Join([]string{"1.#QNAN", "#DIV/0!", "OL", "inf", "1e999"}, ";1\n") + ";1\n"
	c := data.Config{Delimiter: ";", MissingValues: []data.UnquotedYAMLText{"1.#QNAN", "#DIV/0!", "OL", "inf", "1e999"}}
	s := surveyText(t, text, c)
	if got := fmt.Sprint(s.Columns[0].Used, s.Columns[0].Missing, s.Columns[0].Unused); got != "1 5 0" {
		t.Errorf("values used, missing and unused: %s, want 1 5 0", got)
	}
}

// FuzzRemedies checks that the survey gives advice for every fault of any file.
func FuzzRemedies(f *testing.F) {
	f.Add("t;a;y\n1;1,000;2\n2;900;x\n", ";", ",", "")
	f.Add("t,a,y\n20260301,\"1.000,5\",2\n20260302,OL,\n", "", "", "unix")
	f.Add("t,a,y\nSun Mar  1 00:00:00 CET 2026,1'000,2\n46082.5,inf,9\n", "", "", time.UnixDate)
	path := filepath.Join(f.TempDir(), "d.csv")
	f.Fuzz(func(t *testing.T, text, delimiter, decimal, format string) {
		c := data.Config{CSVPath: path, TimeColumn: "t", Delimiter: delimiter, DecimalSeparator: decimal,
			TimeFormat: format}
		var problems spec.ProblemList
		if CheckConfig(&c, &problems, "data"); problems.Err() != nil {
			return
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		w := &data.RowQuery{Features: []string{"a"}, Target: "y", Labels: learner.LabelSet{ClassCount: 3}}
		for _, w := range []*data.RowQuery{w, nil} {
			for _, fault := range storedAt(t, &c, "").Survey(w).Faults {
				if fault.Remedy == "" {
					t.Errorf("%+v has no remedy", fault)
				}
			}
		}
	})
}
