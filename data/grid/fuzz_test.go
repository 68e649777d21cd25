package grid_test

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data/grid"
)

// FuzzReadings checks that for any readings in any order the rows contain finite numbers, lie on the grid in order of
// time, and never use a reading twice.
func FuzzReadings(f *testing.F) {
	reading := func(b []byte, input byte, after time.Duration, value float64) []byte {
		b = append(b, input)
		b = binary.LittleEndian.AppendUint64(b, uint64(after))
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(value))
	}
	var steady, odd []byte
	for i := range 40 {
		for input := range byte(8) {
			steady = reading(steady, input, time.Duration(i)*20*time.Minute, float64(i*int(input)%7))
		}
	}
	for i, at := range []int64{0, -1, 5, 1 << 62, math.MinInt64, math.MaxInt64, 3600e9, 3600e9} {
		odd = reading(odd, byte(i), time.Duration(at), []float64{math.NaN(), math.Inf(1), 1e300, -1}[i%4])
	}
	f.Add(steady, "pm in 1h", "last", 3)
	f.Add(steady, "label", "mean", 0)
	f.Add(append(odd, steady...), "temp", "skip", 1)
	f.Add(steady[:170], "wd", "refuse", 2)
	f.Fuzz(func(t *testing.T, b []byte, target, missing string, queue int) {
		c := config(t, target, grid.FillRule{Policy: grid.FillPolicy(missing), MaxLastValueAge: time.Hour})
		if c.MaxQueuedReadings = queue & 0xff; target == "label" {
			c.ExpandedFeatures = c.ExpandedFeatures[:4]
		}
		g, err := grid.NewRowBuilder(c)
		if err != nil {
			return
		}
		came := uint64(0)
		for ; len(b) >= 17; b = b[17:] {
			r := grid.Reading{Time: began.UnixNano() + int64(binary.LittleEndian.Uint64(b[1:])),
				Value: math.Float64frombits(binary.LittleEndian.Uint64(b[9:]))}
			r.Input = append([]string{"none"}, "pm", "temp", "gust", "low", "rain", "tips", "wd", "label")[b[0]%9]
			if b[0]&0x80 != 0 {
				r.Text = []string{"N", "S W", "?"}[b[0]%3]
			}
			g.AddReading(r)
			came++
		}
		inputs, _, used := g.ReadingCounts()
		for _, c := range inputs {
			used += c.Used
		}
		if used > came {
			t.Fatalf("of %d readings %d are used, or of no input", came, used)
		}
		rows := g.TakeRows()
		for i, at := range rows.Times {
			if at%int64(c.Recipe.Grid.Step) != 0 || i > 0 && at <= rows.Times[i-1] {
				t.Fatalf("row %d is at %d, after %v", i, at, rows.Times[:i])
			}
		}
		if len(rows.X) != len(rows.Times)*len(c.ExpandedFeatures) || len(rows.Y) != len(rows.Times) {
			t.Fatalf("%d rows have %d values and %d targets", len(rows.Times), len(rows.X), len(rows.Y))
		}
		for _, v := range append(rows.X, rows.Y...) {
			if v-v != 0 {
				t.Fatalf("a value is %v", v)
			}
		}
	})
}
