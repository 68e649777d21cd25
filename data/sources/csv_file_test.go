package sources

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
)

// csvAt writes a CSV file and opens its rows with the feature x and the target y.
func csvAt(t *testing.T, name, text string, c data.Config) (*csvHarness, data.QueriedRows) {
	t.Helper()
	h := &csvHarness{path: filepath.Join(t.TempDir(), name)}
	h.put(t, text)
	c.CSVPath = h.path
	s, err := Open(&c)
	if err != nil {
		t.Fatal(err)
	}
	return h, s.OpenRows(data.RowQuery{Features: []string{"x"}, Target: "y"})
}

// xs returns the values of x in the current rows.
func xs(t *testing.T, r data.QueriedRows) ([]float32, data.RowSnapshot) {
	t.Helper()
	v, err := r.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return v.Rows.All().X, v
}

// TestHalfALine checks that an incomplete line is not read as a row.
func TestHalfALine(t *testing.T) {
	h, r := csvAt(t, "d.csv", "x", data.Config{MissingValuePolicy: grid.FillRefuse})
	for _, step := range []struct {
		text string
		want []float32
		err  string
	}{
		{"x", nil, "d.csv: line 1: the first line has no line break yet; this line must name the columns"},
		{"x,y\n", nil, "d.csv: none of the 0 rows of the file is selected"},
		{"x,y\n1", nil, "d.csv: none of the 0 rows of the file is selected, and the last line of the file has no " +
			"line break yet"},
		{"x,y\n1,2\n3", []float32{1}, ""},
		{"x,y\n1,2\n34,", []float32{1}, ""},
		{"x,y\n1,2\n34,5\r\n\n6,7\n8,", []float32{1, 34, 6}, ""},
		{"x,y\n1,2\n34,5\r\n\n6,7\n8,9\n", []float32{1, 34, 6, 8}, ""},
		{"x,y\n1,2\n34,5\r\n\n6,7\n8,9\nwarm,1\n", nil, `d.csv: line 7: column "x": "warm" is not a number`},
		{"x,y\n1,2\n34,5\r\n\n6,7\n8,9\n10,1\n\"a\nb\",1\n", nil, `d.csv: line 8: column "x": "a\nb" is not a number`},
		{"x,y\n1,2\n34,5\r\n\n6,7\n8,9\n10,1\n11,1,1\n", []float32{1, 34, 6, 8, 10}, ""},
		{"x,y\n1,2\n34,5\r\n\n6,7\n8,9\n10,1\n11,1,1\n1,1\n", nil, `d.csv: line 8: found 3 fields, but the header ` +
			`has 2: ` +
			`"11,1,1"`},
		{"x,y\n1,2\n34,5\r\n\n6,7\n8,9\n10,1\n11,1\n", []float32{1, 34, 6, 8, 10, 11}, ""},
	} {
		h.put(t, step.text)
		v, err := r.Snapshot()
		switch {
		case step.err != "":
			if err == nil || !strings.HasSuffix(err.Error(), "/"+step.err) {
				t.Errorf("%q: error %v, want %s", step.text, err, step.err)
			}
		case err != nil || !slices.Equal(v.Rows.All().X, step.want) || v.ReplacementReason != "":
			t.Errorf("%q: %+v, %v; want %v", step.text, v, err, step.want)
		}
	}
}

// TestRenewed checks that a file whose old rows have changed is read again from the start, and that the reason is
// reported.
func TestRenewed(t *testing.T) {
	long := strings.Repeat("1,1\n", 3000) // longer than the compared bytes at both ends
	for _, tt := range []struct {
		name   string
		before string
		change func(t *testing.T, h *csvHarness)
		want   []float32
		why    string // replacement reason; empty if rows were only added
	}{
		{"cut off", "1,1\n2,2\n3,3\n", func(t *testing.T, h *csvHarness) { h.put(t, "x,y\n1,1\n") }, []float32{1},
			"the file was truncated from 16 to 8 bytes after 4 lines had been read; all rows of the file are read " +
				"again"},
		{"cut off and grown", "1,1\n2,2\n", func(t *testing.T, h *csvHarness) {
			h.put(t, "x,y\n5,1\n6,2\n7,7\n")
		}, []float32{5, 6, 7}, "the file was rewritten; all rows of the file are read again"},
		{"changed in place", "1,1\n2,2\n", func(t *testing.T, h *csvHarness) { h.put(t, "x,y\n1,1\n9,2\n") },
			[]float32{1, 9}, "the file was rewritten; all rows of the file are read again"},
		{"the beginning of a long one", long, func(t *testing.T, h *csvHarness) {
			h.put(t, "x,y\n7,1\n"+long)
		}, append([]float32{7}, slices.Repeat([]float32{1}, 3000)...),
			"the file was rewritten; all rows of the file are read again"},
		{"the end of a long one", long, func(t *testing.T, h *csvHarness) {
			h.put(t, "x,y\n"+strings.Repeat("1,1\n", 2999)+"7,1\n1,1\n")
		}, append(slices.Repeat([]float32{1}, 2999), 7, 1),
			"the file was rewritten; all rows of the file are read again"},
		{"another file", "1,1\n2,2\n", func(t *testing.T, h *csvHarness) { replace(t, h, "y,x\n1,4\n2,5\n3,6\n") },
			[]float32{4, 5, 6}, "a different file has this name; all rows of the file are read again"},
		{"another file with the same rows and more", "1,1\n", func(t *testing.T, h *csvHarness) {
			replace(t, h, "y,x\n1,1\n3,6\n")
		}, []float32{1, 6}, ""},
		{"a time of its own", "1,1\n", func(t *testing.T, h *csvHarness) { h.put(t, h.content()) }, []float32{1}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, r := csvAt(t, "d.csv", "x,y\n"+tt.before, data.Config{})
			_, first := xs(t, r)
			tt.change(t, h)
			if !r.Changed() {
				t.Error("nothing has changed")
			}
			got, v := xs(t, r)
			why := tt.why
			if why != "" {
				why = h.path + ": " + why
			}
			if !slices.Equal(got, tt.want) || v.ReplacementReason != why {
				t.Errorf("%d rows %v, %q; want %d, %q", len(got), got[:min(9, len(got))], v.ReplacementReason,
					len(tt.want), why)
			}
			if same := slices.Equal(first.Rows.All().X, got); same != (v.Version == first.Version) {
				t.Errorf("version %d after %d", v.Version, first.Version)
			}
			h.put(t, h.content()+"8,8\n")
			if got, v = xs(t, r); len(got) != len(tt.want)+1 || v.ReplacementReason != "" {
				t.Errorf("one more row makes %d; %q", len(got), v.ReplacementReason)
			}
		})
	}
}

// replace replaces the file with another file that has the same modification time.
func replace(t *testing.T, h *csvHarness, text string) {
	t.Helper()
	info, err := os.Stat(h.path)
	if err == nil {
		err = os.WriteFile(h.path+".new", []byte(text), 0o600)
	}
	if err == nil {
		err = errors.Join(os.Chtimes(h.path+".new", info.ModTime(), info.ModTime()), os.Rename(h.path+".new", h.path))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestEmptiedFile checks that rows added to an emptied file are prepared as the first rows.
func TestEmptiedFile(t *testing.T) {
	one, two := [3]float32{1, 2, 3}, [3]float32{4, 5, 6}
	h := &csvHarness{path: filepath.Join(t.TempDir(), "rows.csv")}
	h.add(t, one, two)
	f := follow(t, h)
	f.wants(1, one, two)
	h.put(t, csvHeader)
	if _, err := f.rows.Snapshot(); err == nil || !strings.Contains(err.Error(), "the file was truncated from") {
		t.Errorf("error %v", err)
	}
	h.add(t, two)
	if v := f.wants(2, two); v.ReplacementReason == "" {
		t.Error("it is not said that rows are gone")
	}
}

// TestFileComesBack checks that a file is followed again after it was missing.
func TestFileComesBack(t *testing.T) {
	h, r := csvAt(t, "d.csv", "x,y\n1,1\n", data.Config{})
	_, first := xs(t, r)
	text := h.content()
	if err := os.Remove(h.path); err != nil {
		t.Fatal(err)
	}
	if !r.Changed() {
		t.Error("nothing has changed")
	}
	for range 2 {
		if _, err := r.Snapshot(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v", err)
		}
		if r.Changed() {
			t.Error("it is still away, and has changed")
		}
	}
	h.put(t, text)
	if got, v := xs(t, r); !r.Changed() && (len(got) != 1 || v.ReplacementReason != "" || v.Version != first.Version) {
		t.Errorf("%v, %+v", got, v)
	}
}

// TestSharesOfAGrowingFile checks that a growing file is divided into the same shares as a complete file.
func TestSharesOfAGrowingFile(t *testing.T) {
	c := data.Config{RequiredTextByColumn: map[string]string{"site": "a"}, ShareIndex: 1, ShareCount: 3}
	text := "site,x,y\n"
	h, r := csvAt(t, "d.csv", text+"a,-1,0\na,-2,0\n", c)
	if got, _ := xs(t, r); !slices.Equal(got, []float32{-2}) {
		t.Errorf("%v", got)
	}
	want := []float32{-2}
	text = h.content()
	for i := range 50 {
		site := string("ab"[i%2])
		text += fmt.Sprintf("%s,%d,0\n", site, i)
		h.put(t, text)
		if matched := i / 2; i%2 == 0 && (matched+2)%3 == 1 {
			want = append(want, float32(i))
		}
		if got, v := xs(t, r); !slices.Equal(got, want) || int(v.Version) != len(want) {
			t.Fatalf("after line %d: %v, version %d; want %v", i, got, v.Version, want)
		}
	}
}

// TestCompressedFileGrows checks that a compressed file is read again after it has grown.
func TestCompressedFileGrows(t *testing.T) {
	text := "x,y\n1,1\n"
	h, r := csvAt(t, "d.csv.gz", zip(t, text+"2,2"), data.Config{})
	if got, _ := xs(t, r); !slices.Equal(got, []float32{1, 2}) {
		t.Errorf("%v", got)
	}
	h.put(t, zip(t, text+"2,2\n3,3\n"))
	if got, v := xs(t, r); !slices.Equal(got, []float32{1, 2, 3}) || v.ReplacementReason != "" || v.Version != 2 {
		t.Errorf("%v, %+v", got, v)
	}
	half := zip(t, text+"2,2\n3,3\n")
	h.put(t, half[:len(half)-12])
	if _, err := r.Snapshot(); err == nil || !strings.Contains(err.Error(), "unexpected EOF") {
		t.Errorf("half a file: %v", err)
	}
	h.put(t, zip(t, text))
	if got, v := xs(t, r); !slices.Equal(got, []float32{1}) || !strings.Contains(v.ReplacementReason,
		"the file was truncated") {
		t.Errorf("%v, %+v", got, v)
	}
}

// TestCutOffWhileRead checks that an error is returned if a file is truncated while it is read.
func TestCutOffWhileRead(t *testing.T) {
	h, _ := csvAt(t, "d.csv", "x,y\n1,1\n22,22\n", data.Config{})
	f, err := os.Open(h.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(h.path, 12); err != nil {
		t.Fatal(err)
	}
	err = readUpToOffset(f, 14, &readPosition{stamp: fileStamp{path: h.path}}, &csvReadCounts{},
		func(text *countingReader,
			at *readPosition,
			_ *csvReadCounts) error {
			n, err := io.Copy(io.Discard, text)
			at.readBytes, at.readLines = n, 2
			return err
		})
	if want := h.path + ": line 3: the file was truncated here while it was being read"; err == nil ||
		err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestGrowthReadsOnlyWhatIsNew checks that old rows are not read again when a file grows. Only the bytes before the end
// of the old data that detect a rewritten file may be read again.
func TestGrowthReadsOnlyWhatIsNew(t *testing.T) {
	h, r := csvAt(t, "d.csv", "x,y\n"+strings.Repeat("1,1\n", 5000), data.Config{})
	if _, v := xs(t, r); v.Rows.Len() != 5000 {
		t.Fatalf("%d rows", v.Rows.Len())
	}
	text := []byte(h.content())
	text[10000] = '?' // a byte far from both ends of the file
	h.put(t, string(text)+"2,2\n")
	if got, _ := xs(t, r); len(got) != 5001 {
		t.Errorf("%d rows", len(got))
	}
}
