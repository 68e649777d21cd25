package sources

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/spec"
)

// TestDialects checks files in the formats that spreadsheets, data loggers and people write.
func TestDialects(t *testing.T) {
	berlin := data.Config{TimeColumn: "Zeit", TimeFormat: "02.01.2006 15:04", TimeZone: "Europe/Berlin", Delimiter: ";",
		DecimalSeparator: ",", ColumnByInput: map[string]string{"x": "Leistung (kW)"}}
	for _, tt := range []struct {
		name, text string
		config     data.Config
		x, y       []float32
		times      []string
	}{
		{"a spreadsheet", "\ufeff\"y\",\"note\",\"x\"\r\n1,\"a, b\",\"2\"\r\n3,,4\r\n", data.Config{}, []float32{2, 4},
			[]float32{1, 3}, nil},
		{"a German spreadsheet", "\ufeffZeit;Leistung (kW);y\r\n" +
			"29.03.2026 01:30;1,5;-2\r\n29.03.2026 03:30;\"2,25\";1e1\r\n",
			berlin, []float32{1.5, 2.25}, []float32{-2, 10}, []string{"2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"}},
		{"a logger with tabs", "x\ty\n1\t2\n\t3\n5\t6\n", data.Config{Delimiter: "\t", MaxUnusableShare: 0.5},
			[]float32{1,
				5},
			[]float32{2, 6}, nil},
		{"blanks", " x , y \n 1 , 2 \n 3, \"4\"\n", data.Config{}, []float32{1, 3}, []float32{2, 4}, nil},
		{"words", "x,y\ntrue,False\n0,TRUE\n", data.Config{}, []float32{1, 0}, []float32{0, 1}, nil},
		{"points are no commas", "x;y\n1.5;2\n1,5;2\n1,234,5;3\n", data.Config{Delimiter: ";", DecimalSeparator: ",",
			MaxUnusableShare: 0.9},
			[]float32{1.5}, []float32{2}, nil},
		{"milliseconds", "x,y,t\n1,2,1772323200500\n", data.Config{TimeColumn: "t", TimeFormat: "unix_ms"},
			[]float32{1},
			[]float32{2}, []string{"2026-03-01T00:00:00.5Z"}},
	} {
		for _, name := range []string{"d.csv", "d.csv.gz"} {
			t.Run(tt.name+" "+name, func(t *testing.T) {
				text := tt.text
				if isCompressedPath(name) {
					text = zip(t, text)
				}
				var problems spec.ProblemList
				c := tt.config
				c.CSVPath = name
				if CheckConfig(&c, &problems, "data"); problems.Err() != nil {
					t.Fatal(problems.Err())
				}
				_, r := csvAt(t, name, text, tt.config)
				x, v := xs(t, r)
				if !slices.Equal(x, tt.x) || !slices.Equal(v.Rows.All().Y, tt.y) {
					t.Errorf("%v, %v; want %v, %v", x, v.Rows.All().Y, tt.x, tt.y)
				}
				var times []string
				for _, at := range timesOf(v) {
					times = append(times, time.Unix(0, at).UTC().Format(time.RFC3339Nano))
				}
				if !slices.Equal(times, tt.times) {
					t.Errorf("times %v, want %v", times, tt.times)
				}
			})
		}
	}
}

// TestColumnsOfTheFile checks that the error for a missing column contains the name in the file.
func TestColumnsOfTheFile(t *testing.T) {
	_, r := csvAt(t, "d.csv", "a,y\n1,2\n", data.Config{ColumnByInput: map[string]string{"x": "Temp."}})
	want := `line 1: column "Temp.": this column is missing; the file has the columns "a", "y"`
	if _, err := r.Snapshot(); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestDialectsThatCannotBe(t *testing.T) {
	for key, c := range map[string]data.Config{
		"data.delimiter":           {Delimiter: ";;"},
		"the comma cannot be both": {DecimalSeparator: ","},
		"decimal is":               {DecimalSeparator: "'"},
		"data.time_format":         {TimeFormat: "hh:mm"},
		"time zone":                {TimeZone: "Berlin"},
		"data.max_bad":             {MaxUnusableShare: 1},
		"data.time: is":            {MissingValuePolicy: grid.FillLast, MaxLastValueAge: time.Hour},
		"data.missing":             {MissingValuePolicy: "zero"},
	} {
		c.CSVPath = "d.csv"
		var problems spec.ProblemList
		if CheckConfig(&c, &problems, "data"); problems.Err() == nil || !strings.Contains(problems.Err().Error(), key) {
			t.Errorf("%+v: %v, want %q", c, problems.Err(), key)
		}
	}
}

// FuzzDialects checks that any text yields rows of finite numbers, or an error with a place in the file. A growing file
// must yield the same rows as a file that is read at once.
func FuzzDialects(f *testing.F) {
	f.Add("x;y\n1,5;2\n;3\n", ";", ",", "", 4)
	f.Add("\ufeff\"x\"\t\"y\"\r\n1\t2\r\n", "\t", ".", "last", 9)
	f.Add("t,x,y\n1,NA,2\n2,3,4", ",", "", "mean", 12)
	f.Add("x,y\n1,2\n\"3\n\",4\n", "", "", "refuse", 8)
	f.Fuzz(func(t *testing.T, text, delimiter, decimal, missing string, cut int) {
		c := data.Config{CSVPath: "d.csv", Delimiter: delimiter, DecimalSeparator: decimal,
			MissingValuePolicy: grid.FillPolicy(missing),
			MaxUnusableShare:   0.99}
		var problems spec.ProblemList
		if CheckConfig(&c, &problems, "data"); problems.Err() != nil {
			return
		}
		h := &csvHarness{path: filepath.Join(t.TempDir(), "d.csv")}
		c.CSVPath = h.path
		open := func() data.QueriedRows {
			s, err := Open(&c)
			if err != nil {
				t.Fatal(err)
			}
			return s.OpenRows(data.RowQuery{Features: []string{"x"}, Target: "y"})
		}
		grown := open()
		if cut > 0 && cut < len(text) {
			h.put(t, text[:cut])
			_, _ = grown.Snapshot() // the snapshot may fail
		}
		h.put(t, text)
		got, errGrown := grown.Snapshot()
		want, err := open().Snapshot()
		if bad := (*data.FileError)(nil); err != nil && (!errors.As(err, &bad) || bad.Problem == "") {
			t.Fatalf("error %v", err)
		}
		if err != nil || errGrown != nil { // a line break in quotes may split lines until more text has arrived
			return
		}
		a, b := got.Rows.All(), want.Rows.All()
		if !slices.Equal(a.X, b.X) || !slices.Equal(a.Y, b.Y) {
			if strings.Contains(text, "\"") {
				return
			}
			t.Fatalf("grown %v %v, at once %v %v", a.X, a.Y, b.X, b.Y)
		}
		for _, v := range slices.Concat(b.X, b.Y) {
			if !data.IsFinite(float64(v)) {
				t.Fatalf("value %v", v)
			}
		}
	})
}
