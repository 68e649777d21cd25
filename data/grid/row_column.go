package grid

import (
	"math"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/spec"
)

// column is a feature that is ready to be made.
type column struct {
	spec.Column
	input        *input // nil of the calendar
	windowPoints int64  // of Span
	class        float64
}

// newColumn finds what a column is made of.
func (g *Grid) newColumn(c spec.Column) *column {
	n := &column{Column: c, windowPoints: int64(c.LagOrWindow) / g.step}
	if !c.IsCalendar() {
		n.input = &g.inputs[g.indexByInput[c.Input]]
		n.input.used = true
		n.class = float64(slices.Index(n.input.Classes, c.Class))
	}
	return n
}

// pointsBehind is how many points before its row's a column sees.
func (c *column) pointsBehind() int64 {
	switch {
	case c.Operation == spec.ByLag:
		return c.windowPoints
	case c.IsWindow():
		return c.windowPoints - 1
	}
	return 0
}

// pointRange are the points that the column of the row at point k is made of.
func (c *column) pointRange(k int64) (first, last int64) {
	if c.IsWindow() {
		return k - c.pointsBehind(), k
	}
	return k - c.pointsBehind(), k - c.pointsBehind()
}

// valueAt returns the column of the row at point k; nothing if it has none.
func (c *column) valueAt(g *Grid, k int64) float64 {
	switch {
	case c.IsCalendar():
		return c.calendar(time.Unix(0, k*g.step).In(g.zone))
	case c.Operation == spec.ByIs:
		v := g.closedPointValue(c.input, k)
		if isPresent(v) && v != c.class {
			return 0
		} else if isPresent(v) {
			return 1
		}
		return absentValue
	case c.IsWindow():
		return c.window(g, k)
	}
	return g.closedPointValue(c.input, k-c.pointsBehind())
}

// calendar is made of the local time of a point.
func (c *column) calendar(t time.Time) float64 {
	hour, minute, second := t.Clock()
	turn := float64(hour*3600+minute*60+second) / 86400
	if c.Input == "weekday" {
		turn = (float64((t.Weekday()+6)%7) + turn) / 7 // Monday is 0
	}
	sin, cos := math.Sincos(2 * math.Pi * turn)
	if c.Operation == spec.BySin {
		return sin
	}
	return cos
}

// window is over the points k − n + 1 to k. It needs all of them.
func (c *column) window(g *Grid, k int64) float64 {
	first, n := k-c.pointsBehind(), float64(c.windowPoints)
	low, high, sum := math.Inf(1), math.Inf(-1), 0.0
	for j := first; j <= k; j++ {
		v := g.closedPointValue(c.input, j)
		if !isPresent(v) {
			return absentValue
		}
		low, high, sum = min(low, v), max(high, v), sum+v
	}
	mean := sum / n
	switch c.Operation {
	case spec.ByMin:
		return low
	case spec.ByMax:
		return high
	case spec.ByMean:
		return mean
	}
	squares := 0.0
	for j := first; j <= k; j++ {
		d := g.closedPointValue(c.input, j) - mean
		squares += float64(d * d)
	}
	return math.Sqrt(squares / n)
}

// closedPointValue returns the value of an input at a closed point; nothing before the first one.
func (g *Grid) closedPointValue(in *input, k int64) float64 {
	if k < g.first {
		return absentValue
	}
	return in.values[k%int64(len(in.values))]
}
