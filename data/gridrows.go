package data

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// gridRows are rows that are made of the readings of a feed.
type gridRows struct {
	feed    feed
	want    Want
	config  grid.Config
	ahead   int64        // from a row to its target, in nanoseconds
	nothing func() error // why there are no rows
	bad     error        // that keeps rows from ever being made

	said    // by the grid
	grid    *grid.Grid
	begun   bool      // rows have been prepared since the readings were void
	fresh   grid.Rows // not prepared yet
	x, y    []float32 // the rows so far; views share their memory, and it is never changed
	times   []int64
	view    View   // the last one
	renewed string // why the rows of the last view were given up; until it is told
}

// newGridRows follows a feed. A source without rows says why with nothing.
func newGridRows(f feed, w Want, fill grid.Fill, nothing func() error) Rows {
	r := &gridRows{feed: f, want: w, nothing: nothing,
		config: grid.Config{Recipe: *w.Recipe, Features: w.Features, Target: w.Target, Missing: fill,
			Early: w.Early}}
	zone, err := time.LoadLocation(w.Recipe.Grid.Zone) // the empty name is UTC
	if err != nil && slices.ContainsFunc(w.Features, calendar) {
		r.bad = fmt.Errorf("the task's calendar columns need the time zone %s: %w: install the system's time zones "+
			"(tzdata, on OpenWrt zoneinfo-all)", w.Recipe.Grid.Zone, err)
	}
	r.config.Zone = zone
	if target, err := spec.ParseColumn(w.Target); err == nil {
		r.ahead = int64(target.Span)
	}
	if r.bad == nil {
		r.grid, r.bad = grid.New(r.config)
	}
	return r
}

// calendar reports whether a column needs a time zone.
func calendar(name string) bool {
	c, err := spec.ParseColumn(name)
	return err == nil && c.Calendar()
}

// Changed implements Rows.
func (r *gridRows) Changed() bool { return r.bad == nil && (r.feed.changed() || len(r.fresh.Y) > 0) }

// Snapshot implements Rows.
func (r *gridRows) Snapshot() (View, error) {
	if r.bad != nil {
		return View{}, r.bad
	}
	err := r.feed.read(r.void, func(x Reading) { r.grid.Add(x) })
	defer r.count()
	if err != nil {
		return View{}, err
	}
	if err := r.grid.Refused(); err != nil {
		return View{}, err
	}
	if err := r.prepare(); err != nil {
		return View{}, err
	}
	if len(r.y) == 0 {
		return View{}, r.none()
	}
	if r.renewed != "" || r.view.Rows == nil || r.view.Rows.Len() != len(r.y) {
		r.view = View{Version: r.view.Version + 1, Rows: learner.NewSamples(len(r.want.Features), r.x, r.y),
			Times: r.times, Ahead: r.ahead, Renewed: r.renewed}
		r.renewed = ""
	}
	return r.view, nil
}

// void forgets all readings.
func (r *gridRows) void(why string) {
	r.grid, _ = grid.New(r.config) // as before
	if len(r.y) > 0 {
		r.renewed = why
	}
	r.begun, r.fresh, r.x, r.y, r.times = false, grid.Rows{}, nil, nil, nil
}

// prepare brings new rows into the task's terms and adds them.
func (r *gridRows) prepare() error {
	some := r.grid.Take()
	r.fresh.X, r.fresh.Y = append(r.fresh.X, some.X...), append(r.fresh.Y, some.Y...)
	r.fresh.Times = append(r.fresh.Times, some.Times...)
	if len(r.fresh.Y) == 0 {
		return nil
	}
	x, y := slices.Clone(r.fresh.X), slices.Clone(r.fresh.Y) // those of a call that fails come again, as they were
	if r.want.Prepare != nil {
		if err := r.want.Prepare(learner.NewSamples(len(r.want.Features), x, y), !r.begun); err != nil {
			return err
		}
	}
	r.x, r.y, r.times = append(r.x, x...), append(r.y, y...), append(r.times, r.fresh.Times...)
	r.begun, r.fresh = true, grid.Rows{}
	return nil
}

// none says why there are no rows: nothing has come, or what has come is not enough.
func (r *gridRows) none() error {
	r.count()
	if err := r.nothing(); err != nil {
		return fmt.Errorf("no row can be made yet: %w; %s", err, r.Report())
	}
	return fmt.Errorf("no row can be made yet; %s", r.Report())
}

// count takes note of what the grid has counted.
func (r *gridRows) count() {
	counts, dropped, _ := r.grid.Counts()
	all := Report{Rows: len(r.y), Bad: int(dropped)}
	for _, c := range counts {
		e := ColumnReport{Name: c.Input, Used: c.Used, Newest: c.Newest, Unused: c.Unused}
		switch {
		case c.Line > 0:
			e.Where = r.feed.where(c.Input, c.Line)
		case c.At > 0:
			e.Where = strings.TrimSpace(r.feed.where(c.Input, 0) + " at " + moment(c.At))
		case c.Lacked > 0:
			e.Where = "the row at " + moment(c.Lacked)
		}
		all.Columns = append(all.Columns, e)
	}
	r.tell(all)
}

func moment(at int64) string { return time.Unix(0, at).UTC().Format(time.RFC3339) }

// Report implements Reporter: what the feed tells, and the grid of what came through. Of the values of an input those
// are used that the grid has used.
func (r *gridRows) Report() Report {
	all, made := r.feed.Report(), r.said.Report()
	all.Rows, all.Bad = made.Rows, made.Bad
	for _, c := range made.Columns {
		e := all.column(c.Name)
		e.Used, e.Newest, e.Where = c.Used, max(e.Newest, c.Newest), cmp.Or(c.Where, e.Where)
		for why, n := range c.Unused {
			e.count(why, n)
		}
	}
	return all
}
