package grid

import (
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/fedmesh/fedmesh/spec"
)

// RowBuilderConfig defines the rows that a RowBuilder makes.
type RowBuilderConfig struct {
	Recipe           spec.RowRecipe // recipe for the rows, with its defaults filled in
	ExpandedFeatures []string       // column expressions without short forms
	Target           string         // target expression; empty means that all targets are 0
	CalendarZone     *time.Location // time zone of calendar columns; nil means UTC
	MissingFill      FillRule
	MissingValues    MissingValues
	DeviceInputs     map[string]DeviceInput // properties of inputs on this device, by name
	// AcceptTarget, if set, reports whether a target is valid. Rows with an invalid target are not made.
	AcceptTarget      func(y float64) bool
	MaxQueuedReadings int  // maximum number of queued readings; 0 means DefaultMaxQueuedReadings
	IsForPrediction   bool // whether to make each row as soon as its point is closed, with target 0, for predictions
}

// DeviceInput contains the properties of an input on one device.
type DeviceInput struct {
	// Unit is the unit of the readings. It replaces the units that readings contain. If it is empty, readings without a
	// unit have the unit of the recipe.
	Unit string
	// ValidRange is the valid range [minimum, maximum] of readings before they are converted to the unit of the recipe.
	// It is nil if any value is valid.
	ValidRange []float64
}

// FillRule defines the replacement of missing values.
type FillRule struct {
	Policy          FillPolicy    // how missing values are replaced; empty means FillSkip
	MaxLastValueAge time.Duration // maximum age of the previous value, for FillLast
}

const (
	// DefaultMaxQueuedReadings is the default maximum number of queued readings, at 32 bytes each.
	DefaultMaxQueuedReadings = 1 << 18
	// MaxSilentPoints is the number of points without a reading after which a grid starts again.
	MaxSilentPoints = spec.MaxSpanPoints

	maxReadingTime = math.MaxInt64 - 4*int64(spec.MaxGridDuration) // maximum time of a reading
)

// MadeRows contains rows in order of time. Row i has the features X[i·n : (i+1)·n], where n is the number of features.
type MadeRows struct {
	X, Y  []float32
	Times []int64
}

// RowBuilder makes rows from readings. It is not safe for concurrent use.
type RowBuilder struct {
	calendarZone      *time.Location
	missingFill       FillRule
	gridStep          int64
	lateness          int64
	maxQueuedReadings int // maximum length of the queue
	inputs            []inputState
	indexByInput      map[string]int
	columns           []*gridColumn
	lookbackPoints    int64 // number of earlier grid points that a row needs
	target            targetState
	ignoresTargets    bool
	acceptTarget      func(float64) bool

	queue                  readingQueue
	lastReadingNumber      int64 // number of the last reading
	readingNumbersAreLines bool  // whether reading numbers are line numbers
	newestReadingTime      int64 // newest time of all accepted readings
	watermark              int64 // readings with an earlier time are late
	// lastReleasedByInput contains the last reading of each input that has left the queue. Its time is −1 if no reading
	// has left the queue.
	lastReleasedByInput  []queuedReading
	hasFirstPoint        bool
	firstPoint           int64  // first point since the start of the stream or the last silence
	openPoint            int64  // point that is being aggregated; earlier points are closed
	lastPointWithReading int64  // last point with a reading
	pointHasReading      []bool // ring buffer of closed points: whether any input had a reading

	untakenRows              MadeRows
	rowInProgress            []float32 // features of the row that is being made
	rowGaps                  []rowGap  // missing values of the row that is being made
	droppedRowCount          uint64
	unknownInputReadingCount uint64 // number of readings of inputs that the recipe does not name
	missingValueErr          error
}

// NewRowBuilder returns a RowBuilder without readings. It returns an error if the recipe or the columns are invalid.
func NewRowBuilder(c RowBuilderConfig) (*RowBuilder, error) {
	var problems spec.ProblemList
	c.Recipe.Check(&problems, "task")
	if problems.ProblemCount() == 0 {
		c.Recipe.CheckColumns(&problems, "task", c.ExpandedFeatures, c.Target)
	}
	problems.Require(len(c.Recipe.Inputs) > 0, "task.inputs", "is empty")
	if err := problems.Err(); err != nil {
		return nil, err
	}
	g := &RowBuilder{calendarZone: c.CalendarZone, missingFill: c.MissingFill, gridStep: int64(c.Recipe.Grid.Step),
		lateness: int64(c.Recipe.Grid.Lateness), maxQueuedReadings: c.MaxQueuedReadings, indexByInput: map[string]int{},
		ignoresTargets: c.IsForPrediction || c.Target == "",
		inputs:         make([]inputState, len(c.Recipe.Inputs)), lastReleasedByInput: make([]queuedReading,
			len(c.Recipe.Inputs)),
		acceptTarget: c.AcceptTarget}
	if g.calendarZone == nil {
		g.calendarZone = time.UTC
	}
	if g.maxQueuedReadings == 0 {
		g.maxQueuedReadings = DefaultMaxQueuedReadings
	}
	for i, in := range c.Recipe.Inputs {
		g.inputs[i] = newInputState(in, c.MissingValues, c.DeviceInputs[in.Name])
		if g.inputs[i].unitErr != nil {
			return nil, fmt.Errorf("input %q: the unit in data.units does not fit the task: %w", in.Name,
				g.inputs[i].unitErr)
		}
		g.indexByInput[in.Name], g.lastReleasedByInput[i].time = i, -1
	}
	return g, g.prepareColumns(c.ExpandedFeatures, c.Target)
}

// prepareColumns creates the columns and the ring buffers for the values that they require.
func (g *RowBuilder) prepareColumns(features []string, target string) error {
	reach := map[*inputState]int64{}
	for _, name := range features {
		c, err := spec.ParseColumnExpression(name)
		if err != nil {
			return fmt.Errorf("%w: call NewRowBuilder with expanded feature names", err)
		}
		n := g.newGridColumn(c)
		g.columns = append(g.columns, n)
		g.lookbackPoints = max(g.lookbackPoints, n.lookbackPoints())
		if n.input != nil {
			reach[n.input] = max(reach[n.input], n.lookbackPoints())
		}
	}
	g.target = noTargetState()
	if target != "" {
		c, err := spec.ParseColumnExpression(target)
		if err != nil {
			return err
		}
		g.target = newTargetState(g.newGridColumn(c), g.gridStep)
	}
	g.pointHasReading = make([]bool, g.lookbackPoints+int64(g.target.maxRowWaitPoints)+1)
	for in, n := range reach {
		in.pointValues = make([]float64, n+g.target.maxRowWaitPoints+1)
	}
	g.rowInProgress = make([]float32, 0, len(features)+1)
	return nil
}

// CountRejectedReading counts a reading that the caller has rejected for the given reason.
func (g *RowBuilder) CountRejectedReading(r Reading, why UnusedReason) {
	if i, there := g.indexByInput[r.Input]; there {
		g.inputs[i].readingCounts.countRejected(why, r)
	}
}

// AddReading adds the next reading and makes all rows that are complete.
func (g *RowBuilder) AddReading(r Reading) {
	i, there := g.indexByInput[r.Input]
	if !there {
		g.unknownInputReadingCount++
		return
	}
	in := &g.inputs[i]
	if g.lastReadingNumber++; r.Line > 0 {
		g.lastReadingNumber, g.readingNumbersAreLines = r.Line, true
	}
	v, reason := in.acceptedValue(r)
	wait := int64(in.LabelLateness)
	if reason == ReasonMissing && wait == 0 && meansOffline(r.Text) {
		v, reason = absentValue, "" // the reading is rejected later, in order of time, by aggregateReading
	}
	switch {
	case reason != "":
	case r.Time < 0 || r.Time > maxReadingTime:
		reason = ReasonBadTime
	case r.Time < g.newestReadingTime-g.lateness-wait:
		reason = ReasonLate
	case r.Time < g.watermark-wait: // the watermark has advanced further because the queue was full
		reason = ReasonNoRoom
	case wait > 0 && in != g.target.input: // the reading is a label, but its input is not the target
		in.readingCounts.countUsed()
	case wait > 0:
		reason = g.target.addLabel(targetLabel{r.Time, r.Source, v}, g.gridPointAt(r.Time), g.maxQueuedReadings)
	default:
		g.queue.push(queuedReading{r.Time, v, r.Source,
			uint64(i)<<readingNumberBits | uint64(g.lastReadingNumber)&(1<<readingNumberBits-1)})
	}
	if reason != "" {
		in.readingCounts.countRejected(reason, r)
		return
	}
	g.newestReadingTime = max(g.newestReadingTime, r.Time)
	if r.Time >= in.readingCounts.NewestTime {
		in.readingCounts.NewestTime, in.readingCounts.NewestValue = r.Time, v
	}
	g.moveWatermark(r.Time - g.lateness)
}

// gridPointAt returns the grid point for a time.
func (g *RowBuilder) gridPointAt(t int64) int64 { return (t + g.gridStep - 1) / g.gridStep }

// moveWatermark advances the watermark to the time to, unless it is later already, and aggregates the queued readings
// that the watermark has passed.
func (g *RowBuilder) moveWatermark(to int64) {
	g.watermark = max(g.watermark, to)
	for len(g.queue) > 0 && (g.queue[0].time < g.watermark || len(g.queue) > g.maxQueuedReadings) {
		w := g.queue.pop()
		g.watermark = max(g.watermark, w.time)
		g.aggregateReading(w)
	}
	if g.hasFirstPoint {
		g.closePointsBefore(g.gridPointAt(g.watermark))
		g.makeOrDropRows()
	}
}

// aggregateReading adds a reading to its point, after closing all earlier points.
func (g *RowBuilder) aggregateReading(w queuedReading) {
	i := w.inputIndex()
	in := &g.inputs[i]
	if last := g.lastReleasedByInput[i]; last.time == w.time && last.source == w.source {
		in.readingCounts.countRejected(ReasonDuplicate, g.unpackQueuedReading(w))
		return
	}
	g.lastReleasedByInput[i] = w
	k := g.gridPointAt(w.time)
	if !isPresent(w.value) {
		if g.hasFirstPoint {
			g.closePointsBefore(k)
		}
		in.isOffline = true
		in.readingCounts.countRejected(ReasonMissing, g.unpackQueuedReading(w))
		return
	}
	if !g.hasFirstPoint {
		g.hasFirstPoint = true
		g.startAtPoint(k)
	}
	g.closePointsBefore(k)
	g.lastPointWithReading = k
	if why := in.plausibility.rejectReason(&in.InputSeries, timedValue{w.time, w.value}, g.gridStep); why != "" {
		in.readingCounts.countRejected(why, g.unpackQueuedReading(w))
		return
	}
	in.hasReading, in.isOffline = true, false
	in.readingCounts.countUsed()
	in.openPointAggregate.addValue(w.value)
}

// unpackQueuedReading returns a queued reading with its time, its value and, if it was read from a file, its line.
func (g *RowBuilder) unpackQueuedReading(w queuedReading) Reading {
	r := Reading{Time: w.time, Value: w.value}
	if g.readingNumbersAreLines {
		r.Line = w.readingNumber()
	}
	return r
}

// startAtPoint restarts the grid at point k and discards the state of earlier points.
func (g *RowBuilder) startAtPoint(k int64) {
	g.firstPoint, g.openPoint, g.lastPointWithReading = k, k, k
	g.target.startAtPoint(k)
	for i := range g.inputs {
		g.inputs[i].hasReading, g.inputs[i].plausibility = false, plausibilityCheck{}
	}
}

// closePointsBefore closes all points before k.
func (g *RowBuilder) closePointsBefore(k int64) {
	for g.openPoint < k {
		if g.openPoint-g.lastPointWithReading > MaxSilentPoints {
			g.makeOrDropRows()
			g.startAtPoint(k)
			return
		}
		for i := range g.inputs {
			if in := &g.inputs[i]; in.isNeededByRows {
				measured := in.closePoint(g.openPoint, g.missingFill, g.gridStep)
				if in == g.target.input && in.LabelLateness == 0 {
					g.target.storeMeasuredValue(g.openPoint, measured)
				}
			}
		}
		g.pointHasReading[g.openPoint%int64(len(g.pointHasReading))] = g.lastPointWithReading == g.openPoint
		g.openPoint++
		g.makeOrDropRows()
	}
}

// makeOrDropRows makes each row whose target is known, and drops each row whose target can no longer arrive.
func (g *RowBuilder) makeOrDropRows() {
	for g.target.nextUndecidedPoint < g.openPoint {
		y, decided := g.target.nextTarget(g.openPoint, g.watermark)
		if g.ignoresTargets {
			y = 0
		} else if !decided {
			return
		}
		k := g.target.nextUndecidedPoint
		g.target.advancePoint()
		if k-g.lookbackPoints >= g.firstPoint { // otherwise the row requires points before the first point
			g.makeRow(k, y)
		}
	}
}

// makeRow makes the row of point k or counts its missing values. A row is not counted if it requires a point at which
// no input had a reading, because the device was then off.
func (g *RowBuilder) makeRow(k int64, y float64) {
	row, gaps, off := g.rowInProgress[:0], g.rowGaps[:0], false
	lack := func(in *inputState, v float64, first, last int64) {
		off = off || !g.allPointsHaveReading(first, last)
		why := ReasonGap
		switch {
		case isPresent(v) && !isFiniteAsFloat32(v):
			why = ReasonNotFinite
		case isPresent(v):
			why = ReasonUnknownClass
		case in.LabelLateness > 0:
			why = ReasonNoLabel
		}
		gaps = append(gaps, rowGap{in, why})
	}
	for _, c := range g.columns {
		v := c.valueAt(g, k)
		if x := float32(v); x-x != 0 && c.input != nil {
			first, last := c.pointRange(k)
			if lack(c.input, v, first, last); g.missingFill.Policy == FillRefuse && g.missingValueErr == nil {
				g.missingValueErr = fmt.Errorf("%s: column %q has no value, and missing values are not allowed",
					time.Unix(0, k*g.gridStep).UTC().Format(time.RFC3339), c)
			}
		}
		row = append(row, float32(v))
	}
	if !isFiniteAsFloat32(y) || g.acceptTarget != nil && !g.ignoresTargets && !g.acceptTarget(y) {
		lack(g.target.input, y, k+g.target.horizonPoints, k+g.target.horizonPoints)
	}
	switch g.rowGaps = gaps; {
	case len(gaps) == 0:
		g.untakenRows.X = append(g.untakenRows.X, row...)
		g.untakenRows.Y = append(g.untakenRows.Y, float32(y))
		g.untakenRows.Times = append(g.untakenRows.Times, k*g.gridStep)
	case !off:
		g.countDroppedRow(k)
	}
}

// isFiniteAsFloat32 reports whether v is finite after conversion to float32.
func isFiniteAsFloat32(v float64) bool { x := float32(v); return x-x == 0 }

// rowGap is an input without a usable value for a row, with the reason.
type rowGap struct {
	*inputState
	why UnusedReason
}

// countDroppedRow counts a dropped row, once for each input with a gap.
func (g *RowBuilder) countDroppedRow(k int64) {
	g.droppedRowCount++
	for _, l := range g.rowGaps {
		if l.lastGapPoint != k {
			if l.readingCounts.countUnused(l.why); l.why.MeansWrongValue() {
				l.readingCounts.RecentWrongShare.CountValue(true)
			}
			l.lastGapPoint, l.readingCounts.LastGapTime = k, k*g.gridStep
		}
	}
}

// allPointsHaveReading reports whether each of the points from first to last has a reading of any input.
func (g *RowBuilder) allPointsHaveReading(first, last int64) bool {
	for k := first; k <= last; k++ {
		if !g.pointHasReading[k%int64(len(g.pointHasReading))] {
			return false
		}
	}
	return true
}

// RequiredAndActualReadingSpan returns two time spans. need is the span of readings that a row requires, from the first
// grid point of its columns to the time at which its target is known. have is the span of the readings so far, rounded
// to seconds.
func (g *RowBuilder) RequiredAndActualReadingSpan() (need, have time.Duration) {
	need = time.Duration((g.lookbackPoints+g.target.horizonPoints+1)*g.gridStep + g.lateness + g.target.labelLateness)
	if g.newestReadingTime > 0 {
		first := g.newestReadingTime
		if g.hasFirstPoint {
			first = g.firstPoint * g.gridStep
		}
		for _, w := range g.queue {
			first = min(first, w.time)
		}
		have = time.Duration(g.newestReadingTime - first)
	}
	return need, have.Round(time.Second)
}

// TakeRows returns the rows that have been made since the last call.
func (g *RowBuilder) TakeRows() MadeRows {
	rows := g.untakenRows
	g.untakenRows = MadeRows{}
	return rows
}

// ReadingCounts returns the counts of each input. dropped is the number of rows that were not made because a value was
// missing, except at the start and while the device was off. strange is the number of readings of inputs that the
// recipe does not name.
func (g *RowBuilder) ReadingCounts() (inputs []InputReadingCounts, dropped, strange uint64) {
	for i := range g.inputs {
		c := g.inputs[i].readingCounts
		c.Unused, c.LastRejectedByReason = maps.Clone(c.Unused), maps.Clone(c.LastRejectedByReason)
		inputs = append(inputs, c)
	}
	return inputs, g.droppedRowCount, g.unknownInputReadingCount
}

// MissingValueError returns an error if a value was missing and missing values are refused. Otherwise it returns nil.
func (g *RowBuilder) MissingValueError() error { return g.missingValueErr }
