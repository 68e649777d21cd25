package grid

import (
	"math"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/spec"
)

// gridColumn is a feature that is ready to be made.
type gridColumn struct {
	spec.ColumnExpression
	input             *inputState // nil of the calendar
	lagOrWindowPoints int64       // of Span
	classIndex        float64
}

// newGridColumn finds what a column is made of.
func (g *RowBuilder) newGridColumn(c spec.ColumnExpression) *gridColumn {
	n := &gridColumn{ColumnExpression: c, lagOrWindowPoints: int64(c.LagOrWindow) / g.gridStep}
	if !c.IsCalendar() {
		n.input = &g.inputs[g.indexByInput[c.InputName]]
		n.input.isNeededByRows = true
		n.classIndex = float64(slices.Index(n.input.Classes, c.Class))
	}
	return n
}

// lookbackPoints is how many points before its row's a column sees.
func (c *gridColumn) lookbackPoints() int64 {
	switch {
	case c.Operation == spec.OperationLag:
		return c.lagOrWindowPoints
	case c.IsWindow():
		return c.lagOrWindowPoints - 1
	}
	return 0
}

// pointRange are the points that the column of the row at point k is made of.
func (c *gridColumn) pointRange(k int64) (first, last int64) {
	if c.IsWindow() {
		return k - c.lookbackPoints(), k
	}
	return k - c.lookbackPoints(), k - c.lookbackPoints()
}

// valueAt returns the column of the row at point k; nothing if it has none.
func (c *gridColumn) valueAt(g *RowBuilder, k int64) float64 {
	switch {
	case c.IsCalendar():
		return c.calendarValue(time.Unix(0, k*g.gridStep).In(g.calendarZone))
	case c.Operation == spec.OperationIsClass:
		v := g.closedPointValue(c.input, k)
		if isPresent(v) && v != c.classIndex {
			return 0
		} else if isPresent(v) {
			return 1
		}
		return absentValue
	case c.IsWindow():
		return c.windowValue(g, k)
	}
	return g.closedPointValue(c.input, k-c.lookbackPoints())
}

// calendarValue is made of the local time of a point.
func (c *gridColumn) calendarValue(t time.Time) float64 {
	hour, minute, second := t.Clock()
	turn := float64(hour*3600+minute*60+second) / 86400
	if c.InputName == "weekday" {
		turn = (float64((t.Weekday()+6)%7) + turn) / 7 // Monday is 0
	}
	sin, cos := math.Sincos(2 * math.Pi * turn)
	if c.Operation == spec.OperationSin {
		return sin
	}
	return cos
}

// windowValue is over the points k − n + 1 to k. It needs all of them.
func (c *gridColumn) windowValue(g *RowBuilder, k int64) float64 {
	first, n := k-c.lookbackPoints(), float64(c.lagOrWindowPoints)
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
	case spec.OperationMin:
		return low
	case spec.OperationMax:
		return high
	case spec.OperationMean:
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
func (g *RowBuilder) closedPointValue(in *inputState, k int64) float64 {
	if k < g.firstPoint {
		return absentValue
	}
	return in.pointValues[k%int64(len(in.pointValues))]
}
