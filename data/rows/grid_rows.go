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
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// gridRows makes rows of the readings of a feed.
type gridRows struct {
	feed             Feed
	needed           []string // inputs that the columns are made of
	rules            ValueRules
	config           grid.Config
	noReadingsReason func() error // why there are no rows
	permanentErr     error        // that keeps rows from ever being made

	data.LatestReport // the last report of the grid
	grid              *grid.Grid
	order             *TimeOrder // checks the times of the readings
	keepsOutliers     bool       // the next restart passes the same readings on, so the outliers found remain valid
	reads             RereadLimit
	labels            TargetFilter
	storeErr          error // error of storing rows
}

// ValueRules are the settings from the configuration that decide which values are used.
type ValueRules struct {
	Fill          grid.Fill
	MissingValues grid.MissingValues
	Ranges        map[string][]float64 // valid range [minimum, maximum] by input
	MaxWrongShare float64              // maximum share of wrong values of an input
	Now           func() time.Time
}

// RulesFromConfig returns the rules of a section of the configuration.
func RulesFromConfig(c *data.Config, now func() time.Time) ValueRules {
	return ValueRules{c.Fill(), c.MissingValueRules(), c.Range, c.UnusableShareLimit(), now}
}

// NewGridRows returns the rows that are made of the readings of a feed. nothing returns the reason why there are no
// readings.
func NewGridRows(f Feed, w data.RowQuery, by ValueRules, at Storage, nothing func() error) *Shared {
	r := &gridRows{feed: f, needed: w.Inputs(), rules: by, noReadingsReason: nothing,
		config: grid.Config{Recipe: *w.Recipe, ExpandedFeatures: w.Features, Target: w.Target, MissingFill: by.Fill,
			MissingValues: by.MissingValues, Ranges: by.Ranges, BeforeTargets: w.BeforeTargets}}
	if r.labels.LabelSet = w.Labels; w.Labels != (learner.LabelSet{}) {
		r.config.AcceptTarget = func(y float64) bool { return r.labels.Accept(y) } // restart replaces r.labels
	}
	m := &Shared{Maker: r, Raw: &Raw{Storage: at, Features: len(w.Features), Timed: true,
		keepTail: w.BeforeTargets}}
	zone, err := time.LoadLocation(w.Recipe.Grid.Zone) // the empty name is UTC
	if err != nil && slices.ContainsFunc(w.Features, isCalendarColumn) {
		r.permanentErr = fmt.Errorf("the task's calendar columns need the time zone %s: %w: install the system's "+
			"time zones "+
			"(tzdata, on OpenWrt zoneinfo-all)", w.Recipe.Grid.Zone, err)
	}
	r.config.Zone = zone
	if target, err := spec.ParseColumn(w.Target); err == nil {
		m.targetDelay = int64(target.LagOrWindow)
	}
	if r.permanentErr == nil {
		r.restart(nil)
	}
	return m
}

// restart resets the grid and the order check before all readings are processed again. outliers contains the numbers of
// the readings whose times are known to be outliers.
func (r *gridRows) restart(outliers map[uint64]bool) {
	r.grid, r.permanentErr = grid.New(r.config)
	r.labels = r.labels.NextPass()
	r.order = NewTimeOrder(MaxLateness(&r.config.Recipe), r.rules.Now(), outliers)
}

// isCalendarColumn reports whether a column needs a time zone.
func isCalendarColumn(name string) bool {
	c, err := spec.ParseColumn(name)
	return err == nil && c.IsCalendar()
}

// Changed implements Maker.
func (r *gridRows) Changed() bool {
	return r.permanentErr == nil && (r.feed.Changed() || r.order.FoundOutliers)
}

// readingsPerRowStore is after how many readings the rows that are made of them are kept.
const readingsPerRowStore = 1024

// AddNewRows implements Maker. Readings that were read are not read again, unless their rows could not be kept.
func (r *gridRows) AddNewRows(m *Shared) error {
	if r.permanentErr != nil {
		return r.permanentErr
	}
	err := r.read(m)
	r.updateCounts(m.Rows)
	if err == nil && m.Rows > 0 {
		err = r.checkWrongShare()
	}
	return err
}

// read makes rows of the new readings. If some readings turn out to be invalid, it processes all readings again without
// them.
func (r *gridRows) read(m *Shared) error {
	if lost := m.Raw.Err(); lost != nil {
		r.feed.Rewind(lost.Error())
	}
	r.storeErr = nil
	for {
		err := r.readOnce(m)
		r.storeRows(m)
		if r.storeErr == nil {
			r.storeErr = m.Raw.Flush()
		}
		if r.storeErr != nil {
			m.Raw.Truncate(m.Rows)
			r.feed.Rewind("its rows could not be kept")
			return r.storeErr
		}
		m.Rows = m.Raw.Len()
		if err == nil {
			r.order.CheckTail()
		}
		if err != nil || !NeedsReread(r.order, &r.labels) || !r.reads.Allow(r.order.lines) {
			return cmp.Or(err, r.grid.RefusalError())
		}
		r.keepsOutliers = r.order.FoundOutliers
		r.feed.Rewind("some of its readings turned out to be invalid")
	}
}

// readOnce passes the new readings to the grid.
func (r *gridRows) readOnce(m *Shared) error {
	n := 0
	r.order.SetClock(r.rules.Now())
	restart := func(why string) {
		outliers := map[uint64]bool(nil)
		if r.keepsOutliers {
			outliers, r.keepsOutliers = r.order.Outliers, false
		}
		r.restart(outliers)
		m.DiscardRows(m.NewRawRows(), why)
	}
	return r.feed.Read(restart, func(x data.Reading) bool {
		class := r.order.Classify(x.Time, x.Number)
		switch {
		case x.Input == "": // contains only the time of a line
		case class == Outlier:
			r.grid.Reject(x, grid.Future)
		default: // also Late: the order only finds wrong clocks, and the grid knows the lateness of each input
			r.grid.Add(x)
		}
		if n++; n%readingsPerRowStore == 0 {
			r.storeRows(m)
		}
		return class != Outlier
	})
}

// storeRows adds the rows that were made.
func (r *gridRows) storeRows(m *Shared) {
	if some := r.grid.TakeRows(); r.storeErr == nil && len(some.Y) > 0 {
		r.storeErr = m.Raw.Add(some.X, some.Y, some.Times)
	}
}

// checkWrongShare returns why the rows cannot be worked on: too much of an input is wrong. For predictions they will
// do.
func (r *gridRows) checkWrongShare() error {
	all := r.Report()
	c, worst := r.worstColumn(&all)
	if r.config.BeforeTargets || worst.Share() <= r.rules.MaxWrongShare {
		return nil
	}
	return &data.FileError{File: c.LastUnusedWhere, Column: c.Name, Reason: string(worst.MainReason),
		BadCount:   worst.WrongCount,
		TotalCount: worst.TotalCount,
		Problem: fmt.Sprintf("%s; %d of %d values cannot be used, more than data.max_bad (%g) allows", worst.MainReason,
			worst.WrongCount, worst.TotalCount, r.rules.MaxWrongShare)}
}

// worstColumn returns the column of which the largest share of the values is wrong. Inputs that no column needs do not
// count, and gaps neither: of twelve stations two lack a value in half of their rows, and have good ones.
func (r *gridRows) worstColumn(all *data.Report) (of data.ColumnReport, worst data.BadValues) {
	for _, c := range all.Columns {
		if c.Name == "" || r.config.Recipe.InputIndex(c.Name) >= 0 && !slices.Contains(r.needed, c.Name) {
			continue
		}
		if b := c.WrongValues(); b.Share() > worst.Share() {
			of, worst = c, b
		}
	}
	return of, worst
}

// NoRowsError implements Maker: nothing has come, or what has come is not enough.
func (r *gridRows) NoRowsError(string) error {
	all := r.Report()
	e := r.shortageCause(&all)
	e.Problem = "no row can be made yet; " + all.String()
	if why := r.explainShortage(&all); why != "" {
		e.Problem = fmt.Sprintf("no row can be made yet: %s; %s", why, all)
	}
	return e
}

// explainShortage returns the reason why the readings so far are not enough for a row, or "" if it is unknown.
func (r *gridRows) explainShortage(all *data.Report) string {
	newest := int64(0)
	for _, name := range r.needed {
		c := all.Column(name)
		if c.Used == 0 {
			if err := r.noReadingsReason(); err != nil {
				return err.Error()
			}
			return ""
		}
		newest = max(newest, c.Newest)
	}
	if newest < MinPlausibleUnix {
		return fmt.Sprintf("the newest reading is dated %s: check data.time_format", FormatTime(newest))
	}
	need, have := r.grid.ReadingSpans()
	if have < need {
		return fmt.Sprintf("a row needs readings that span at least %s, but the readings so far span %s",
			need, have)
	}
	return ""
}

// shortageCause says what keeps rows from being made: a trouble of the source, an input without a reading that can be
// used, or one of which much is wrong.
func (r *gridRows) shortageCause(all *data.Report) *data.FileError {
	for _, t := range all.Troubles {
		if t.Kind != data.TroubleSilent && !t.Kind.Doubtful() {
			return &data.FileError{Reason: string(t.Kind)}
		}
	}
	for _, name := range r.needed {
		c := all.Column(name)
		if c.Newest != 0 {
			continue
		}
		e := &data.FileError{Column: name, Reason: string(data.TroubleSilent)}
		for _, why := range data.Reasons() {
			if n := c.Unused[why]; n > e.BadCount && (c.ReceivedValues > 0 || why == grid.NoLabel) {
				e.File, e.Reason, e.BadCount, e.TotalCount = c.LastUnusedWhere, string(why), n, max(c.ReceivedValues, n)
			}
		}
		return e
	}
	c, worst := r.worstColumn(all)
	return &data.FileError{File: c.LastUnusedWhere, Column: c.Name, Reason: string(worst.MainReason),
		BadCount:   worst.WrongCount,
		TotalCount: worst.TotalCount}
}

// updateCounts takes note of what the grid has counted.
func (r *gridRows) updateCounts(rows int) {
	counts, dropped, _ := r.grid.Counts()
	all := data.Report{Rows: rows, BadRows: int(dropped)}
	for _, c := range counts {
		e := data.ColumnReport{Name: c.Input, Used: c.Used, Newest: c.Newest, Unused: c.Unused,
			RecentWrongShare: c.Recent.Share()}
		if c.LastGapTime > 0 {
			e.LastUnusedWhere = "the row at " + FormatTime(c.LastGapTime)
			for why := range c.Unused { // of those without a rejected reading
				e.SetExample(why, data.UnusedExample{Where: e.LastUnusedWhere})
			}
		}
		for why, rejected := range c.LastRejectedByReason {
			e.SetExample(why, r.rejectedExample(c.Input, rejected))
		}
		if c.LastRejected.Why != "" {
			last := e.LastUnusedByReason[c.LastRejected.Why]
			e.LastUnusedWhere, e.Problem = cmp.Or(last.Where, e.LastUnusedWhere), last.Problem
		}
		all.Columns = append(all.Columns, e)
	}
	r.SetReport(all)
}

// rejectedExample returns the place and the description of a reading that the grid has rejected.
func (r *gridRows) rejectedExample(input string, of grid.RejectedReading) data.UnusedExample {
	e := data.UnusedExample{Problem: readingProblem(of)}
	switch {
	case of.Line > 0:
		e.Where = r.feed.Where(input, of.Line)
	case of.At > 0:
		e.Where = strings.TrimSpace(r.feed.Where(input, 0) + " at " + FormatTime(of.At))
	}
	return e
}

// readingProblem describes a reading that the grid has rejected.
func readingProblem(c grid.RejectedReading) string {
	text := c.Text
	if text == "" {
		text = strconv.FormatFloat(c.Value, 'g', -1, 64)
	}
	switch c.Why {
	case grid.Late:
		return "older than the newest reading by more than the lateness"
	case grid.Duplicate:
		return "duplicate: the same source already has a reading of this time"
	case grid.Future, grid.BadTime:
		return data.CellProblem(FormatTime(c.At), c.Why)
	case grid.Stuck:
		return data.Quoted(text) + " has not changed for too long"
	case grid.Jump:
		return data.Quoted(text) + " is too far from the previous value"
	case grid.Dropped:
		return "too many readings are waiting"
	}
	return data.CellProblem(text, c.Why)
}

// FormatTime returns a time in nanoseconds since 1970 as text for a message.
func FormatTime(at int64) string { return time.Unix(0, at).UTC().Format(time.RFC3339) }

// Report implements data.Reporter. The feed counts the received values of an input and the values that it rejects. The
// grid counts the values that it uses, which replace those of the feed, and the values that it rejects.
func (r *gridRows) Report() data.Report {
	all, made := r.feed.Report(), r.LatestReport.Report()
	all.Rows, all.BadRows = made.Rows, made.BadRows
	for _, c := range made.Columns {
		e := all.Column(c.Name)
		e.Problem = cmp.Or(c.Problem, e.Problem)
		e.Used, e.Newest, e.LastUnusedWhere = c.Used, cmp.Or(c.Newest, e.Newest), cmp.Or(c.LastUnusedWhere,
			e.LastUnusedWhere)
		// the grid judges the values that the feed has accepted
		e.RecentWrongShare = 1 - (1-e.RecentWrongShare)*(1-c.RecentWrongShare)
		for why, n := range c.Unused {
			e.AddUnused(why, n)
		}
		for why, last := range c.LastUnusedByReason {
			e.SetExample(why, last)
		}
	}
	_, worst := r.worstColumn(&all)
	all.LargestWrongShare = worst.Share()
	all.AddUnusedTroubles(r.needed)
	return all
}
