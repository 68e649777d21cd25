package sources

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/learner"
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// loadCSV returns the rows of a file with the target y.
func loadCSV(path string, where map[string]string, features ...string) (*learner.Samples[float32], error) {
	c := data.Config{CSVPath: path, RequiredTextByColumn: where, MissingValuePolicy: grid.FillRefuse}
	s, err := Open(&c)
	if err != nil {
		return nil, err
	}
	return data.LoadRows(s, data.RowQuery{Features: features, Target: "y"})
}

func zip(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const sites = "site,x,y\na,1,2\nb,3,4\na,5,6\n"

func TestLoad(t *testing.T) {
	for name, content := range map[string]string{"plain.csv": sites, "packed.csv.gz": zip(t, sites)} {
		t.Run(name, func(t *testing.T) {
			s, err := loadCSV(write(t, name, content), map[string]string{"site": "a"}, "x")
			if err != nil {
				t.Fatal(err)
			}
			if s.Len() != 2 {
				t.Fatalf("%d rows, want 2", s.Len())
			}
			if x, y := s.Row(1); x[0] != 5 || y != 6 {
				t.Errorf("row 1 is %v, %v; want 5, 6", x, y)
			}
		})
	}
}

// TestLoadSaysWhere checks that errors contain the file, the line and the column of the fault.
func TestLoadSaysWhere(t *testing.T) {
	tests := []struct{ name, file, content, want string }{
		{"missing column", "d.csv", "x,z\n1,2\n", `d.csv: line 1: column "y": this column is missing; the file has ` +
			`the columns "x", "z"`},
		{"text in a number", "d.csv", "x,y\n1,2\n3,warm\n", `d.csv: line 3: column "y": "warm" is not a number`},
		{"no rows", "d.csv", "x,y\n", `d.csv: none of the 0 rows of the file is selected`},
		{"empty", "d.csv", "", `d.csv: the file is empty; the first line must name the columns`},
		{"not gzip", "d.csv.gz", sites,
			`d.csv.gz: the name ends in .gz, but the content is not gzip: rename the file without .gz`},
		{"gzip with the name of a text", "d.csv", zip(t, sites),
			`d.csv: the content is gzip, but the name does not end in .gz: rename the file to d.csv.gz`},
		{"a workbook", "d.csv", "PK\x03\x04\x14\x00",
			`d.csv: the content is a ZIP archive or an Excel workbook, not text: export the table as a CSV file`},
		{"gzip that is cut off", "d.csv.gz", zip(t, sites)[:25], `d.csv.gz: unexpected EOF`},
		{"text in a packed number", "d.csv.gz", zip(t, "x,y\nhot,2\n"),
			`d.csv.gz: line 2: column "x": "hot" is not a number`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := loadCSV(write(t, tt.file, tt.content), nil, "x")
			if err == nil || !strings.HasSuffix(err.Error(), "/"+tt.want) {
				t.Errorf("error %v\nwant a path and then %s", err, tt.want)
			}
		})
	}
}

func TestLoadMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.csv")
	if _, err := loadCSV(path, nil, "x"); !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want one that names %s", err, path)
	}
}
