package grid

import (
	"math"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/spec"
)

// gridColumn computes one feature of the rows.
type gridColumn struct {
	spec.ColumnExpression
	input             *inputState // input of the column; nil for calendar columns
	lagOrWindowPoints int64       // lag or window length in grid points
	classIndex        float64
}

// newGridColumn returns the column for an expression and marks its input as needed.
func (g *RowBuilder) newGridColumn(c spec.ColumnExpression) *gridColumn {
	n := &gridColumn{ColumnExpression: c, lagOrWindowPoints: int64(c.LagOrWindow) / g.gridStep}
	if !c.IsCalendar() {
		n.input = &g.inputs[g.indexByInput[c.InputName]]
		n.input.isNeededByRows = true
		n.classIndex = float64(slices.Index(n.input.Classes, c.Class))
	}
	return n
}

// lookbackPoints returns the number of earlier grid points that the column needs for a row.
func (c *gridColumn) lookbackPoints() int64 {
	switch {
	case c.Operation == spec.OperationLag:
		return c.lagOrWindowPoints
	case c.IsWindow():
		return c.lagOrWindowPoints - 1
	}
	return 0
}

// pointRange returns the first and last point from which the column of the row at point k is computed.
func (c *gridColumn) pointRange(k int64) (first, last int64) {
	if c.IsWindow() {
		return k - c.lookbackPoints(), k
	}
	return k - c.lookbackPoints(), k - c.lookbackPoints()
}

// valueAt returns the value of the column for the row at point k, or absentValue.
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

// calendarValue returns the sine or cosine of the local time of day or of the week.
func (c *gridColumn) calendarValue(t time.Time) float64 {
	hour, minute, second := t.Clock()
	turn := float64(hour*3600+minute*60+second) / 86400
	if c.InputName == "weekday" {
		turn = (float64((t.Weekday()+6)%7) + turn) / 7 // Monday is day 0 of the week
	}
	sin, cos := math.Sincos(2 * math.Pi * turn)
	if c.Operation == spec.OperationSin {
		return sin
	}
	return cos
}

// windowValue returns the minimum, maximum, mean or standard deviation over the points k − n + 1 to k. It returns
// absentValue if any of these points has no value.
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

// closedPointValue returns the value of an input at a closed point. It returns absentValue before the first point.
func (g *RowBuilder) closedPointValue(in *inputState, k int64) float64 {
	if k < g.firstPoint {
		return absentValue
	}
	return in.pointValues[k%int64(len(in.pointValues))]
}
