package sources

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data"
)

// TestBoundaryStays checks that no row moves from one side of a held-out boundary to the other while rows are added,
// removed and added again.
func TestBoundaryStays(t *testing.T) {
	for name, c := range map[string]data.Config{"by rows": {}, "by time": {TimeColumn: "t"}} {
		t.Run(name, func(t *testing.T) {
			text := "t,x,y\n"
			for i := range 10 {
				text += fmt.Sprintf("2026-03-01T00:%02d:00Z,%d,0\n", i/2, i) // each pair of rows has the same time
			}
			h, r := csvAt(t, "d.csv", text, c)
			_, v := xs(t, r)
			b := v.HeldOutBoundary(0.3)
			want := data.HeldOutBoundary{RowsBefore: 7}
			trained := []float32{0, 1, 2, 3, 4, 5, 6}
			if c.TimeColumn != "" { // rows whose time equals the boundary's time are on the same side
				want.Time, trained = time.Date(2026, 3, 1, 0, 3, 0, 0, time.UTC), trained[:6]
			}
			if b != want {
				t.Errorf("boundary %+v, want %+v", b, want)
			}
			for _, text := range []string{text, text + "2026-03-01T00:05:00Z,10,0\n1772326800,11,0\n", text} {
				h.put(t, text)
				_, v := xs(t, r)
				a, z := v.SplitHeldOut(b)
				if !slices.Equal(a.All().X, trained) {
					t.Errorf("of %d rows, %v are trained on, want %v", v.Rows.Len(), a.All().X, trained)
				}
				if got := append(slices.Clone(a.All().X), z.All().X...); !slices.Equal(got, v.Rows.All().X) {
					t.Errorf("both sides are %v, the view %v", got, v.Rows.All().X)
				}
			}
		})
	}
	h, r := csvAt(t, "d.csv", "t,x,y\n5,1,0\n", data.Config{TimeColumn: "t"})
	_, v := xs(t, r)
	if b := v.HeldOutBoundary(0.01); b.RowsBefore != 0 {
		t.Errorf("of one row some is held out: %+v", b)
	}
	h.put(t, "t,x,y\n5,1,0\n6,1,0\n")
	if _, v = xs(t, r); v.Times.Len() != 2 || v.Times.At(1) != 6e9 {
		t.Errorf("times %v", timesOf(v))
	}
}

func TestTimes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, " 1.5": 1_500_000_000,
		"1772323200": 1772323200e9, "2026-03-01T00:00:00Z": 1772323200e9,
		"2026-03-01T01:00:00.5+01:00": 1772323200.5e9} {
		_, r := csvAt(t, "d.csv", "t,x,y\n"+text+",1,2\n", data.Config{TimeColumn: "t"})
		if _, v := xs(t, r); v.Times.At(0) != want {
			t.Errorf("%q: %d, want %d", text, v.Times.At(0), want)
		}
	}
	for text, want := range map[string]string{
		"t,x,y\nnoon,1,2\n": `line 2: column "t": "noon" is not a time in the format ` +
			`2026-03-01T12:00:00Z or in`,
		"t,x,y\n-1,1,2\n":                   `line 2: column "t": "-1" is not a time`,
		"t,x,y\n1e12,1,2\n":                 `line 2: column "t": "1e12" is not a time`,
		"t,x,y\nNaN,1,2\n":                  `line 2: column "t": "NaN" is not a time`,
		"t,x,y\n1600-01-01T00:00:00Z,1,2\n": `line 2: column "t": "1600-01-01T00:00:00Z" is not a time`,
		"t,x,y\n5,1,2\n5,1,2\n4.9,1,2\n":    `line 4: column "t": "4.9" is earlier than the time of a previous row`,
		"x,y\n1,2\n":                        `line 1: column "t": this column is missing`,
	} {
		_, r := csvAt(t, "d.csv", text, data.Config{TimeColumn: "t"})
		if _, err := r.Snapshot(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	h, r := csvAt(t, "d.csv", "t,x,y\n5,1,2\n", data.Config{TimeColumn: "t"})
	if _, v := xs(t, r); v.Version != 1 {
		t.Errorf("version %d", v.Version)
	}
	h.put(t, "t,x,y\n5,1,2\n4,1,2\n")
	if _, err := r.Snapshot(); err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("a row that is added and older: %v", err)
	}
}
