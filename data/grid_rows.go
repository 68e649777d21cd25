package data

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// gridRows makes rows of the readings of a feed.
type gridRows struct {
	feed             readingFeed
	needed           []string // inputs that the columns are made of
	rules            valueRules
	config           grid.Config
	noReadingsReason func() error // why there are no rows
	permanentErr     error        // that keeps rows from ever being made

	latestReport // the last report of the grid
	grid         *grid.Grid
	order        *timeOrder // checks the times of the readings
	reads        rereadLimit
	labels       targetFilter
	storeErr     error // error of storing rows
}

// valueRules are the settings from the configuration that decide which values are used.
type valueRules struct {
	fill          grid.Fill
	missingValues grid.MissingValues
	ranges        map[string][]float64 // valid range [minimum, maximum] by input
	maxWrongShare float64              // maximum share of wrong values of an input
	now           func() time.Time
}

func rulesFromConfig(c *Config, now func() time.Time) valueRules {
	return valueRules{c.fill(), c.missingValues(), c.Range, c.maxBad(), now}
}

// newGridRows returns the rows that are made of the readings of a feed. nothing returns the reason why there are no
// readings.
func newGridRows(f readingFeed, w RowQuery, by valueRules, at rowStorage, nothing func() error) *sharedRows {
	r := &gridRows{feed: f, needed: w.inputs(), rules: by, noReadingsReason: nothing,
		config: grid.Config{Recipe: *w.Recipe, ExpandedFeatures: w.Features, Target: w.Target, MissingFill: by.fill,
			MissingValues: by.missingValues, Ranges: by.ranges, BeforeTargets: w.BeforeTargets}}
	if r.labels.LabelSet = w.Labels; w.Labels != (learner.LabelSet{}) {
		r.config.AcceptTarget = r.labels.accept
	}
	m := &sharedRows{rowMaker: r, raw: &rawRows{rowStorage: at, features: len(w.Features), timed: true,
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
		r.begin(nil)
	}
	return m
}

// begin resets the grid and the order check before all readings are processed again. outliers contains the numbers of
// the readings whose times are known to be outliers.
func (r *gridRows) begin(outliers map[uint64]bool) {
	r.grid, r.permanentErr = grid.New(r.config)
	r.labels = r.labels.nextPass()
	r.order = newTimeOrder(maxLateness(&RowQuery{Recipe: &r.config.Recipe}), r.rules.now(), outliers)
}

// isCalendarColumn reports whether a column needs a time zone.
func isCalendarColumn(name string) bool {
	c, err := spec.ParseColumn(name)
	return err == nil && c.IsCalendar()
}

// changed implements rowMaker.
func (r *gridRows) changed() bool {
	return r.permanentErr == nil && (r.feed.changed() || r.order.foundOutliers)
}

// readingsPerRowStore is after how many readings the rows that are made of them are kept.
const readingsPerRowStore = 1024

// addNewRows implements rowMaker. Readings that were read are not read again, unless their rows could not be kept.
func (r *gridRows) addNewRows(m *sharedRows) error {
	if r.permanentErr != nil {
		return r.permanentErr
	}
	err := r.read(m)
	r.updateCounts(m.rows)
	if err == nil && m.rows > 0 {
		err = r.checkWrongShare()
	}
	return err
}

// read makes rows of the new readings. If some readings turn out to be invalid, it processes all readings again without
// them.
func (r *gridRows) read(m *sharedRows) error {
	if lost := m.raw.err(); lost != nil {
		r.feed.rewind(lost.Error())
	}
	r.storeErr = nil
	for {
		err := r.readOnce(m)
		r.storeRows(m)
		if r.storeErr == nil {
			r.storeErr = m.raw.flush()
		}
		if r.storeErr != nil {
			m.raw.truncate(m.rows)
			r.feed.rewind("its rows could not be kept")
			return r.storeErr
		}
		m.rows = m.raw.len()
		if err == nil {
			r.order.checkTail()
		}
		if err != nil || !needsReread(r.order, &r.labels) || !r.reads.allow(r.order.lines) {
			return cmp.Or(err, r.grid.RefusalError())
		}
		r.feed.rewind("some of its readings turned out to be invalid")
	}
}

// readOnce passes the new readings to the grid.
func (r *gridRows) readOnce(m *sharedRows) error {
	n := 0
	r.order.setClock(r.rules.now())
	return r.feed.read(func(why string) {
		outliers := map[uint64]bool(nil)
		if r.order.foundOutliers {
			outliers = r.order.outliers
		}
		r.begin(outliers)
		m.discardRows(m.newRawRows(), why)
	}, func(x Reading) bool {
		class := r.order.classify(x.Time, x.Number)
		switch {
		case x.Input == "": // contains only the time of a line
		case class == isOutlier:
			r.grid.Reject(x, grid.Future)
		default:
			r.grid.Add(x)
		}
		if n++; n%readingsPerRowStore == 0 {
			r.storeRows(m)
		}
		return class != isOutlier
	})
}

// storeRows adds the rows that were made.
func (r *gridRows) storeRows(m *sharedRows) {
	if some := r.grid.TakeRows(); r.storeErr == nil && len(some.Y) > 0 {
		r.storeErr = m.raw.add(some.X, some.Y, some.Times)
	}
}

// checkWrongShare returns why the rows cannot be worked on: too much of an input is wrong. For predictions they will
// do.
func (r *gridRows) checkWrongShare() error {
	all := r.Report()
	c, worst := r.worstColumn(&all)
	if r.config.BeforeTargets || worst.share() <= r.rules.maxWrongShare {
		return nil
	}
	return &FileError{File: c.LastUnusedWhere, Column: c.Name, Reason: string(worst.why), BadCount: worst.wrongCount,
		TotalCount: worst.totalCount,
		Problem: fmt.Sprintf("%s; %d of %d values cannot be used, more than data.max_bad (%g) allows", worst.why,
			worst.wrongCount, worst.totalCount, r.rules.maxWrongShare)}
}

// worstColumn returns the column of which the largest share of the values is wrong. Inputs that no column needs do not
// count, and gaps neither: of twelve stations two lack a value in half of their rows, and have good ones.
func (r *gridRows) worstColumn(all *Report) (of ColumnReport, worst badValues) {
	for _, c := range all.Columns {
		if c.Name == "" || r.config.Recipe.InputIndex(c.Name) >= 0 && !slices.Contains(r.needed, c.Name) {
			continue
		}
		if b := c.wrongValues(); b.share() > worst.share() {
			of, worst = c, b
		}
	}
	return of, worst
}

// noRowsError implements rowMaker: nothing has come, or what has come is not enough.
func (r *gridRows) noRowsError(string) error {
	all := r.Report()
	e := r.shortageCause(&all)
	e.Problem = "no row can be made yet; " + all.String()
	if why := r.explainShortage(&all); why != "" {
		e.Problem = fmt.Sprintf("no row can be made yet: %s; %s", why, all)
	}
	return e
}

// explainShortage returns the reason why the readings so far are not enough for a row, or "" if it is unknown.
func (r *gridRows) explainShortage(all *Report) string {
	newest := int64(0)
	for _, name := range r.needed {
		c := all.column(name)
		if c.Used == 0 {
			if err := r.noReadingsReason(); err != nil {
				return err.Error()
			}
			return ""
		}
		newest = max(newest, c.Newest)
	}
	if newest < minPlausibleUnix {
		return fmt.Sprintf("the newest reading is dated %s: check data.time_format", formatTime(newest))
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
func (r *gridRows) shortageCause(all *Report) *FileError {
	for _, t := range all.Troubles {
		if t.Kind != TroubleSilent && !t.Kind.Doubtful() {
			return &FileError{Reason: string(t.Kind)}
		}
	}
	for _, name := range r.needed {
		c := all.column(name)
		if c.Newest != 0 {
			continue
		}
		e := &FileError{Column: name, Reason: string(TroubleSilent)}
		for _, why := range Reasons() {
			if n := c.Unused[why]; n > e.BadCount && (c.ReceivedValues > 0 || why == grid.NoLabel) {
				e.File, e.Reason, e.BadCount, e.TotalCount = c.LastUnusedWhere, string(why), n, max(c.ReceivedValues, n)
			}
		}
		return e
	}
	c, worst := r.worstColumn(all)
	return &FileError{File: c.LastUnusedWhere, Column: c.Name, Reason: string(worst.why), BadCount: worst.wrongCount,
		TotalCount: worst.totalCount}
}

// updateCounts takes note of what the grid has counted.
func (r *gridRows) updateCounts(rows int) {
	counts, dropped, _ := r.grid.Counts()
	all := Report{Rows: rows, BadRows: int(dropped)}
	for _, c := range counts {
		e := ColumnReport{Name: c.Input, Used: c.Used, Newest: c.Newest, Unused: c.Unused,
			recent: c.Recent.Share()}
		if c.LastGapTime > 0 {
			e.LastUnusedWhere = "the row at " + formatTime(c.LastGapTime)
			for why := range c.Unused { // of those without a rejected reading
				e.setExample(why, UnusedExample{Where: e.LastUnusedWhere})
			}
		}
		for why, rejected := range c.LastRejectedByReason {
			e.setExample(why, r.rejectedExample(c.Input, rejected))
		}
		if c.LastRejected.Why != "" {
			last := e.LastUnusedByReason[c.LastRejected.Why]
			e.LastUnusedWhere, e.Problem = cmp.Or(last.Where, e.LastUnusedWhere), last.Problem
		}
		all.Columns = append(all.Columns, e)
	}
	r.setReport(all)
}

// rejectedExample returns the place and the description of a reading that the grid has rejected.
func (r *gridRows) rejectedExample(input string, of grid.RejectedReading) UnusedExample {
	e := UnusedExample{Problem: readingProblem(of)}
	switch {
	case of.Line > 0:
		e.Where = r.feed.where(input, of.Line)
	case of.At > 0:
		e.Where = strings.TrimSpace(r.feed.where(input, 0) + " at " + formatTime(of.At))
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
		return cellProblem(formatTime(c.At), c.Why)
	case grid.Stuck:
		return shorten(text) + " has not changed for too long"
	case grid.Jump:
		return shorten(text) + " is too far from the previous value"
	case grid.Dropped:
		return "too many readings are waiting"
	}
	return cellProblem(text, c.Why)
}

func formatTime(at int64) string { return time.Unix(0, at).UTC().Format(time.RFC3339) }

// Report implements Reporter: what the feed tells, and the grid of what came through. Of the values of an input those
// are used that the grid has used.
func (r *gridRows) Report() Report {
	all, made := r.feed.Report(), r.latestReport.Report()
	all.Rows, all.BadRows = made.Rows, made.BadRows
	for _, c := range made.Columns {
		e := all.column(c.Name)
		e.Problem = cmp.Or(c.Problem, e.Problem)
		e.Used, e.Newest, e.LastUnusedWhere = c.Used, cmp.Or(c.Newest, e.Newest), cmp.Or(c.LastUnusedWhere,
			e.LastUnusedWhere)
		e.recent = 1 - (1-e.recent)*(1-c.recent) // the grid judges what the feed has let pass
		for why, n := range c.Unused {
			e.addUnused(why, n)
		}
		for why, last := range c.LastUnusedByReason {
			e.setExample(why, last)
		}
	}
	_, worst := r.worstColumn(&all)
	all.LargestWrongShare = worst.share()
	all.addUnusedTroubles(r.needed)
	return all
}
