package sources

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
)

// TestMissing checks which rows each policy for missing values makes from the same lines.
func TestMissing(t *testing.T) {
	const text = "t,x,y\n0,1,1\n60,,2\n120,NA,3\n180,3,\n240,hot,5\n300,1e39,6\n360,5,7\nnoon,1,8\n"
	for _, tt := range []struct {
		policy  grid.FillPolicy
		atMost  time.Duration
		x, y    []float32
		unused  uint64 // number of unusable rows
		problem string
	}{
		{policy: grid.FillSkip, x: []float32{1, 5}, y: []float32{1, 7}, unused: 6},
		{policy: "", x: []float32{1, 5}, y: []float32{1, 7}, unused: 6},
		{policy: grid.FillLast, atMost: time.Minute, x: []float32{1, 1, 3, 5}, y: []float32{1, 2, 5, 7}, unused: 4},
		{policy: grid.FillLast, atMost: time.Hour, x: []float32{1, 1, 1, 3, 3, 5}, y: []float32{1, 2, 3, 5, 6, 7},
			unused: 2},
		{policy: grid.FillMean, x: []float32{1, 1, 1, 2, 2, 5}, y: []float32{1, 2, 3, 5, 6, 7}, unused: 2},
		{policy: grid.FillRefuse, problem: `line 3: column "x": the value is empty, but a number is required`},
	} {
		t.Run(fmt.Sprint(tt.policy, tt.atMost), func(t *testing.T) {
			c := data.Config{TimeColumn: "t", MissingValuePolicy: tt.policy, MaxLastValueAge: tt.atMost,
				MaxUnusableShare: 0.9}
			// The lines are read all at once and one by one, because replacements depend on the lines above.
			for _, step := range []int{len(text), 1} {
				h, r := csvAt(t, "d.csv", "", c)
				var v data.RowSnapshot
				var err error
				for n := step; n <= len(text); n++ {
					if step == 1 && text[n-1] != '\n' {
						continue
					}
					h.put(t, text[:n])
					v, err = r.Snapshot()
				}
				if tt.problem != "" {
					if err == nil || !strings.HasSuffix(err.Error(), tt.problem) {
						t.Errorf("error %v, want %s", err, tt.problem)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				b := v.Rows.All()
				if !slices.Equal(b.X, tt.x) || !slices.Equal(b.Y, tt.y) || len(timesOf(v)) != len(tt.y) {
					t.Errorf("step %d: %v, %v at %v; want %v, %v", step, b.X, b.Y, timesOf(v), tt.x, tt.y)
				}
				if said := textOf(r).QualityReport(); said.BadRows != int(tt.unused) || said.Rows != len(tt.y) {
					t.Errorf("step %d: report %+v, want %d bad", step, said, tt.unused)
				}
			}
		})
	}
}

// TestReportOfColumns checks that the report counts every rejected cell by column and reason, with the place of the
// last rejected cell.
func TestReportOfColumns(t *testing.T) {
	_, r := csvAt(t, "d.csv", "t,x,y\n5,1,1\n6,,-\n7,warm,null\n4,1,1\nlater,1,1\n8,-Inf,2\n9,1,2\n",
		data.Config{TimeColumn: "t", MaxUnusableShare: 0.9})
	if got, _ := xs(t, r); len(got) != 2 {
		t.Errorf("rows %v", got)
	}
	want := []data.ColumnReport{
		{Name: "x", Used: 2, NewestTime: 9e9, LastUnusedWhere: "line 7",
			Unused: map[data.UnusedReason]uint64{grid.ReasonMissing: 1, grid.ReasonNotANumber: 1,
				grid.ReasonNotFinite: 1}},
		{Name: "y", Used: 3, NewestTime: 9e9, LastUnusedWhere: "line 4",
			Unused: map[data.UnusedReason]uint64{grid.ReasonMissing: 2}},
		{Name: "t", Used: 5, LastUnusedWhere: "line 6", Unused: map[data.UnusedReason]uint64{grid.ReasonBadTime: 1,
			grid.ReasonLate: 1}},
	}
	second := textOf(r).OpenRows(data.RowQuery{Features: []string{"t"}, Target: "y"})
	if _, err := second.Snapshot(); err != nil {
		t.Error(err)
	}
	got := textOf(r).QualityReport() // report of the first reader, because shared values are counted only once
	if got.Rows != 2 || got.BadRows != 5 || len(got.Columns) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, c := range got.Columns {
		w := want[i]
		if c.Name != w.Name || c.Used != w.Used || c.NewestTime != w.NewestTime || !maps.Equal(c.Unused, w.Unused) ||
			!strings.HasSuffix(c.LastUnusedWhere, "d.csv: "+w.LastUnusedWhere) {
			t.Errorf("%+v, want %+v", c, w)
		}
	}
}

// TestMaxBad checks that too many unusable rows cause an error that contains the place of one of them, and that the
// error ends after enough valid rows.
func TestMaxBad(t *testing.T) {
	h, r := csvAt(t, "d.csv", "x,y\n1,1\n2,2\n3,3\n4,4\n,5\n", data.Config{})
	if got, _ := xs(t, r); len(got) != 4 {
		t.Errorf("a fifth is allowed: %v", got)
	}
	h.put(t, h.content()+"a,6\n")
	_, err := r.Snapshot()
	where := (*data.FileError)(nil)
	want := `line 7: column "x": "a" is not a number; 2 of 6 rows are unusable, which exceeds data.max_bad (0.2)`
	if !errors.As(err, &where) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	if r.Changed() {
		t.Error("nothing has changed")
	}
	h.put(t, h.content()+"7,7\n8,8\n9,9\n10,10\n")
	if got, v := xs(t, r); !slices.Equal(got, []float32{1, 2, 3, 4, 7, 8, 9, 10}) || v.Version != 2 ||
		v.ReplacementReason != "" {
		t.Errorf("%v, %+v", got, v)
	}
}

// TestMaxBadHeals checks that rows are accepted again after 161 valid rows, however many unusable rows came before.
func TestMaxBadHeals(t *testing.T) {
	h, r := csvAt(t, "d.csv", "x,y\n"+strings.Repeat("a,1\n", 1000)+strings.Repeat("1,1\n", 160), data.Config{})
	if _, err := r.Snapshot(); err == nil || !strings.Contains(err.Error(), "1000 of 1160 rows are unusable") {
		t.Errorf("error %v", err)
	}
	h.put(t, h.content()+"1,1\n")
	if got, _ := xs(t, r); len(got) != 161 {
		t.Errorf("%d rows", len(got))
	}
	if got := r.(data.QualityReporter).QualityReport().LargestWrongShare; got > 0.2 || got < 0.19 {
		t.Errorf("a share of %v", got)
	}
}

// TestLastLine checks that a last line without a line break is read after the file has not changed for some time.
func TestLastLine(t *testing.T) {
	h, r := csvAt(t, "d.csv", "x,y\n1,1\n2,2", data.Config{MaxUnusableShare: 0.5})
	age := time.Duration(0)
	textOf(r).fileFollower.now = func() time.Time {
		info, err := os.Stat(h.path)
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime().Add(age)
	}
	expect := func(changed bool, renewed string, want ...float32) {
		t.Helper()
		if r.Changed() != changed {
			t.Errorf("changed: %v", !changed)
		}
		if got, v := xs(t, r); !slices.Equal(got, want) || !strings.Contains(v.ReplacementReason, renewed) ||
			renewed == "" && v.ReplacementReason != "" {
			t.Errorf("%v, %q; want %v, %q", got, v.ReplacementReason, want, renewed)
		}
		if r.Changed() {
			t.Error("still changed")
		}
	}
	expect(true, "", 1)
	age = minUnchangedAge - 1
	expect(false, "", 1)
	age = minUnchangedAge
	expect(true, "", 1, 2)
	expect(false, "", 1, 2)
	h.put(t, h.content()+"\n3,3\n") // the missing line break arrives after all
	expect(true, "", 1, 2, 3)
	h.put(t, h.content()+"4,")
	expect(true, "", 1, 2, 3)
	h.put(t, h.content()+"4")
	expect(true, "", 1, 2, 3, 4)
	age = 0
	h.put(t, h.content()+"5\r\n6,6\r\n")
	expect(true, "the last line of the file was extended after the line had been read; all rows of the file are read "+
		"again", 1, 2, 3, 4, 6)
	age = minUnchangedAge
	h.put(t, h.content()+"7")
	// The line has too few fields, so it is incomplete and the rows do not change.
	expect(true, "was extended", 1, 2, 3, 4, 6)
	h.put(t, h.content()+",7\r")
	expect(true, "", 1, 2, 3, 4, 6, 7)
	h.put(t, h.content()+"\n")
	expect(true, "", 1, 2, 3, 4, 6, 7)
	h.put(t, h.content()+"8,8\r\n")
	expect(true, "", 1, 2, 3, 4, 6, 7, 8)
}
