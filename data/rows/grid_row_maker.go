package rows

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/units"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// gridRowMaker makes rows from the readings of a feed.
type gridRowMaker struct {
	feed              ReadingFeed
	neededInputs      []string // names of the inputs that the columns require
	rules             ValueRules
	gridConfig        grid.RowBuilderConfig
	explainNoReadings func() error // returns an error that explains why there are no readings
	permanentErr      error        // error that permanently prevents rows from being made

	data.AtomicQualityReport // latest report of the row builder
	rowBuilder               *grid.RowBuilder
	order                    *TimeOrderCheck // check of the order of the readings' times
	// keepsOutliersOnRestart is true if the next restart delivers the same readings again, so that known outliers
	// remain valid.
	keepsOutliersOnRestart bool
	rereadLimit            RereadLimit
	targetFilter           TargetFilter
	storeErr               error // error that occurred while storing rows
}

// ValueRules contains the configured rules for accepting values.
type ValueRules struct {
	MissingFill   grid.FillRule
	MissingValues grid.MissingValues
	DeviceInputs  map[string]grid.DeviceInput // properties of inputs on this device, by name
	MaxWrongShare float64                     // maximum share of wrong values of an input
	Now           func() time.Time
}

// ValueRulesFromConfig returns the rules of a configuration section.
func ValueRulesFromConfig(c *data.Config, now func() time.Time) ValueRules {
	return ValueRules{c.FillRule(), c.MissingValueRules(), c.DeviceInputs(), c.UnusableShareLimit(), now}
}

// NewRowsFromReadings returns the rows that are made from the readings of feed f. explainNoReadings
// returns an error that explains why no readings exist.
func NewRowsFromReadings(f ReadingFeed, w data.RowQuery, by ValueRules, at StorageSettings,
	explainNoReadings func() error) *SharedRows {
	r := &gridRowMaker{feed: f, neededInputs: w.Inputs(), rules: by, explainNoReadings: explainNoReadings,
		gridConfig: grid.RowBuilderConfig{Recipe: *w.Recipe, ExpandedFeatures: w.Features, Target: w.Target,
			MissingFill:   by.MissingFill,
			MissingValues: by.MissingValues, DeviceInputs: by.DeviceInputs, IsForPrediction: w.IsForPrediction}}
	if r.targetFilter.LabelSet = w.Labels; w.Labels != (learner.LabelSet{}) {
		// Use a closure, because restartGrid replaces r.targetFilter.
		r.gridConfig.AcceptTarget = func(y float64) bool { return r.targetFilter.Accept(y) }
	}
	m := &SharedRows{Maker: r, Raw: &RawRows{StorageSettings: at, FeatureCount: len(w.Features), HasTimes: true,
		keepsOnlyNewestRows: w.IsForPrediction}}
	zone, err := time.LoadLocation(w.Recipe.Grid.TimeZone) // an empty name means UTC
	if err != nil && slices.ContainsFunc(w.Features, isCalendarColumn) {
		r.permanentErr = fmt.Errorf("the task's calendar columns require the time zone %s: %w: "+
			"install the time zone database (tzdata, on OpenWrt zoneinfo-all)", w.Recipe.Grid.TimeZone, err)
	}
	r.gridConfig.CalendarZone = zone
	if target, err := spec.ParseColumnExpression(w.Target); err == nil {
		m.targetDelay = int64(target.LagOrWindow)
	}
	if r.permanentErr == nil {
		r.restartGrid(nil)
	}
	return m
}

// restartGrid resets the row builder and the order check before all readings are processed again. outliers contains the
// sequence numbers of readings whose times are known to be wrong.
func (r *gridRowMaker) restartGrid(outliers map[uint64]bool) {
	r.rowBuilder, r.permanentErr = grid.NewRowBuilder(r.gridConfig)
	r.targetFilter = r.targetFilter.FilterForNextPass()
	r.order = NewTimeOrderCheck(MaxLateness(&r.gridConfig.Recipe), r.rules.Now(), outliers)
}

// isCalendarColumn reports whether a column requires a time zone.
func isCalendarColumn(name string) bool {
	c, err := spec.ParseColumnExpression(name)
	return err == nil && c.IsCalendar()
}

// Changed implements RowMaker.
func (r *gridRowMaker) Changed() bool {
	return r.permanentErr == nil && (r.feed.Changed() || r.order.FoundOutliers)
}

// readingsBetweenStores is the number of readings after which the rows made from them are stored.
const readingsBetweenStores = 1024

// AddNewRows implements RowMaker. It reads each reading only once, unless its rows could not be stored.
func (r *gridRowMaker) AddNewRows(m *SharedRows) error {
	if r.permanentErr != nil {
		return r.permanentErr
	}
	err := r.readNewReadings(m)
	r.updateQualityReport(m.RowCount)
	if err == nil && m.RowCount > 0 {
		err = r.checkWrongValueShare()
	}
	return err
}

// readNewReadings makes rows from the new readings. If some readings turn out to be invalid, it processes all readings
// again without them.
func (r *gridRowMaker) readNewReadings(m *SharedRows) error {
	if lost := m.Raw.Err(); lost != nil {
		r.feed.Rewind(lost.Error())
	}
	r.storeErr = nil
	for {
		err := r.readReadingsIntoGrid(m)
		r.storeRows(m)
		if r.storeErr == nil {
			r.storeErr = m.Raw.Flush()
		}
		if r.storeErr != nil {
			m.Raw.Truncate(m.RowCount)
			r.feed.Rewind("the rows could not be stored")
			return r.storeErr
		}
		m.RowCount = m.Raw.Len()
		if err == nil {
			r.order.MarkFutureTailAsOutliers()
		}
		if err != nil || !NeedsReread(r.order, &r.targetFilter) || !r.rereadLimit.AllowReread(r.order.lines) {
			return cmp.Or(err, r.rowBuilder.MissingValueError())
		}
		r.keepsOutliersOnRestart = r.order.FoundOutliers
		r.feed.Rewind("some readings that were already used turned out to be invalid")
	}
}

// readReadingsIntoGrid passes the new readings to the row builder.
func (r *gridRowMaker) readReadingsIntoGrid(m *SharedRows) error {
	n := 0
	r.order.SetCurrentTime(r.rules.Now())
	restart := func(why string) {
		outliers := map[uint64]bool(nil)
		if r.keepsOutliersOnRestart {
			outliers, r.keepsOutliersOnRestart = r.order.Outliers, false
		}
		r.restartGrid(outliers)
		m.DiscardRows(m.NewRawRows(), why)
	}
	return r.feed.Read(restart, func(x data.Reading) bool {
		class := r.order.ClassifyTime(x.Time, x.SequenceNumber)
		switch {
		case x.Input == "": // the reading contains only the time of a line
		case class == TimeOutlier:
			r.rowBuilder.CountRejectedReading(x, grid.ReasonFutureTime)
		default: // includes TimeLate: the grid checks the lateness of each input itself
			r.rowBuilder.AddReading(x)
		}
		if n++; n%readingsBetweenStores == 0 {
			r.storeRows(m)
		}
		return class != TimeOutlier
	})
}

// storeRows stores all rows that the row builder has finished.
func (r *gridRowMaker) storeRows(m *SharedRows) {
	if some := r.rowBuilder.TakeRows(); r.storeErr == nil && len(some.Y) > 0 {
		r.storeErr = m.Raw.Add(some.X, some.Y, some.Times)
	}
}

// checkWrongValueShare returns an error if an input has too many wrong values. Rows for predictions are always
// accepted.
func (r *gridRowMaker) checkWrongValueShare() error {
	all := r.QualityReport()
	c, worst := r.columnWithMostWrongValues(&all)
	if r.gridConfig.IsForPrediction || worst.CurrentShare() <= r.rules.MaxWrongShare {
		return nil
	}
	return &data.FileError{File: c.LastUnusedWhere, Column: c.Name, ReasonCode: string(worst.MainReason),
		BadCount:   worst.WrongCount,
		TotalCount: worst.TotalCount,
		Problem: fmt.Sprintf("%s; %d of %d values are unusable, which exceeds data.max_bad (%g)", worst.MainReason,
			worst.WrongCount, worst.TotalCount, r.rules.MaxWrongShare)}
}

// columnWithMostWrongValues returns the column with the largest share of wrong values. It ignores inputs that no column
// needs. A missing value is not a wrong value, because a station that often sends no value may still send correct
// values.
func (r *gridRowMaker) columnWithMostWrongValues(all *data.QualityReport) (of data.ColumnReport,
	worst data.WrongValueSummary) {
	for _, c := range all.Columns {
		if c.Name == "" || r.gridConfig.Recipe.InputIndex(c.Name) >= 0 && !slices.Contains(r.neededInputs, c.Name) {
			continue
		}
		if b := c.SummarizeWrongValues(); b.CurrentShare() > worst.CurrentShare() {
			of, worst = c, b
		}
	}
	return of, worst
}

// NoRowsError implements RowMaker.
func (r *gridRowMaker) NoRowsError(string) error {
	all := r.QualityReport()
	e := r.missingRowsCause(&all)
	e.Problem = "no rows can be built yet; " + all.String()
	var why string
	if why, e.IsPending = r.explainMissingRows(&all); why != "" {
		e.Problem = fmt.Sprintf("no rows can be built yet: %s; %s", why, all)
	}
	return e
}

// explainMissingRows returns the reason why the readings received so far are not enough for a row, or "" if the reason
// is unknown. isPending is true if further readings will be enough.
func (r *gridRowMaker) explainMissingRows(all *data.QualityReport) (why string, isPending bool) {
	newest := int64(0)
	for _, name := range r.neededInputs {
		c := all.EnsureColumn(name)
		// A reading that is not yet written to disk, or that waits in the queue, is not counted as used.
		if c.Used == 0 && (c.NewestTime == 0 || len(c.Unused) > 0) {
			if err := r.explainNoReadings(); err != nil {
				return err.Error(), false
			}
			return "", false
		}
		newest = max(newest, c.NewestTime)
	}
	if newest < MinPlausibleUnixNanos {
		return fmt.Sprintf("the newest reading is dated %s: check data.time_format", FormatTime(newest)), false
	}
	need, have := r.rowBuilder.RequiredAndActualReadingSpan()
	if have < need {
		return fmt.Sprintf("a row requires readings that span at least %s, but the readings so far span only %s",
			need, have), true
	}
	return "", false
}

// missingRowsCause returns the main reason why no row can be made: trouble with the source, an input without usable
// readings, or the input with the most wrong values.
func (r *gridRowMaker) missingRowsCause(all *data.QualityReport) *data.FileError {
	for _, t := range all.Troubles {
		if t.Kind != data.TroubleSilent && !t.Kind.ReadingsStillArrive() {
			return &data.FileError{ReasonCode: string(t.Kind)}
		}
	}
	for _, name := range r.neededInputs {
		c := all.EnsureColumn(name)
		if c.NewestTime != 0 {
			continue
		}
		e := &data.FileError{Column: name, ReasonCode: string(data.TroubleSilent)}
		for _, why := range data.UnusedReasons() {
			if n := c.Unused[why]; n > e.BadCount && (c.ReceivedValues > 0 || why == grid.ReasonNoLabel) {
				e.File, e.ReasonCode, e.BadCount, e.TotalCount = c.LastUnusedWhere, string(why), n,
					max(c.ReceivedValues, n)
			}
		}
		return e
	}
	c, worst := r.columnWithMostWrongValues(all)
	return &data.FileError{File: c.LastUnusedWhere, Column: c.Name, ReasonCode: string(worst.MainReason),
		BadCount:   worst.WrongCount,
		TotalCount: worst.TotalCount}
}

// updateQualityReport stores a report with the current counts of the row builder.
func (r *gridRowMaker) updateQualityReport(rows int) {
	counts, dropped, _ := r.rowBuilder.ReadingCounts()
	all := data.QualityReport{Rows: rows, BadRows: int(dropped)}
	for _, c := range counts {
		e := data.ColumnReport{Name: c.Input, Used: c.Used, NewestTime: c.NewestTime, Unused: c.Unused,
			RecentWrongShare: c.RecentWrongShare.Share(), UnusedRun: c.UnusedRun}
		if c.NewestTime != 0 {
			e.NewestValue = &c.NewestValue
		}
		if c.LastGapTime > 0 {
			e.LastUnusedWhere = "the row at " + FormatTime(c.LastGapTime)
			for why := range c.Unused { // add the reasons for which no rejected reading is stored
				e.SetLastUnusedValue(why, data.UnusedValue{Where: e.LastUnusedWhere})
			}
		}
		for why, rejected := range c.LastRejectedByReason {
			e.SetLastUnusedValue(why, r.unusedValueOf(c.Input, rejected))
		}
		if c.LastRejected.Why != "" {
			last := e.LastUnusedByReason[c.LastRejected.Why]
			e.LastUnusedWhere, e.LastUnusedProblem = cmp.Or(last.Where, e.LastUnusedWhere), last.Problem
		}
		all.Columns = append(all.Columns, e)
	}
	r.SetQualityReport(all)
}

// unusedValueOf returns the place and description of a reading that the grid has rejected.
func (r *gridRowMaker) unusedValueOf(input string, of grid.RejectedReading) data.UnusedValue {
	in := r.gridConfig.Recipe.Inputs[r.gridConfig.Recipe.InputIndex(input)]
	e := data.UnusedValue{Problem: describeRejectedReading(of, in.Unit)}
	switch {
	case of.Line > 0:
		e.Where = r.feed.DescribeReadingPlace(input, of.Line)
	case of.Time > 0:
		e.Where = strings.TrimSpace(r.feed.DescribeReadingPlace(input, 0) + " at " + FormatTime(of.Time))
	}
	return e
}

// describeRejectedReading describes a reading that the grid has rejected. inputUnit is the unit of its input.
func describeRejectedReading(c grid.RejectedReading, inputUnit string) string {
	text := c.Text
	if text == "" {
		text = strconv.FormatFloat(c.Value, 'g', -1, 64)
	}
	switch c.Why {
	case grid.ReasonLate:
		return "older than the newest reading by more than the allowed lateness"
	case grid.ReasonDuplicate:
		return "duplicate: the same source already has a reading of this time"
	case grid.ReasonFutureTime, grid.ReasonBadTime:
		return data.DescribeCellProblem(FormatTime(c.Time), c.Why)
	case grid.ReasonStuck:
		return data.QuoteForMessage(text) + " has not changed for too long"
	case grid.ReasonJump:
		return data.QuoteForMessage(text) + " is too far from the previous value"
	case grid.ReasonWrongUnit:
		_, err := units.Between(c.Unit, inputUnit)
		return fmt.Sprintf("%s has a wrong unit: %v: set the sensor's unit in data.units, or correct the sensor",
			data.QuoteForMessage(text), err)
	case grid.ReasonNoRoom:
		return "the queue of readings is full"
	}
	return data.DescribeCellProblem(text, c.Why)
}

// FormatTime returns a time in nanoseconds since 1970 as text for a message.
func FormatTime(at int64) string { return time.Unix(0, at).UTC().Format(time.RFC3339) }

// QualityReport implements data.QualityReporter. The feed counts the received values of each input and the values that
// the feed rejects. The row builder counts the values that it uses and rejects; its number of used values replaces the
// feed's number.
func (r *gridRowMaker) QualityReport() data.QualityReport {
	all, made := r.feed.QualityReport(), r.AtomicQualityReport.QualityReport()
	all.Rows, all.BadRows = made.Rows, made.BadRows
	for _, c := range made.Columns {
		e := all.EnsureColumn(c.Name)
		e.LastUnusedProblem = cmp.Or(c.LastUnusedProblem, e.LastUnusedProblem)
		e.Used, e.NewestTime, e.LastUnusedWhere = c.Used, cmp.Or(c.NewestTime, e.NewestTime), cmp.Or(c.LastUnusedWhere,
			e.LastUnusedWhere)
		// The row builder checks only the values that the feed has accepted.
		e.RecentWrongShare = 1 - (1-e.RecentWrongShare)*(1-c.RecentWrongShare)
		e.NewestValue = c.NewestValue
		if !e.UnusedRun.IsUnusual() {
			e.UnusedRun = c.UnusedRun
		}
		for why, n := range c.Unused {
			e.AddUnusedCount(why, n)
		}
		for why, last := range c.LastUnusedByReason {
			e.SetLastUnusedValue(why, last)
		}
	}
	_, worst := r.columnWithMostWrongValues(&all)
	all.LargestWrongShare = worst.CurrentShare()
	all.AddUnusedValueTroubles(r.neededInputs)
	return all
}
