package data

import (
	"fmt"
	"slices"
	"sync/atomic"
	"weak"

	"github.com/fedmesh/fedmesh/learner"
)

// rowMaker makes rows from the lines of a file, or from readings.
type rowMaker interface {
	// changed reports whether make would find anything. It is cheap.
	changed() bool
	Reporter
	// make adds the rows that have come.
	make(m *sharedRows) error
	// none says why there are no rows. renewed is why those that were there are void; empty if there were none.
	none(renewed string) error
}

// sharedRows contains the rows of a rowMaker, for all callers that want the same rows.
type sharedRows struct {
	rowMaker
	name  string // in errors; may be empty
	raw   *rawRows
	ahead int64 // View.Ahead
	state
	why string // they were renewed

	columns  []string // names of the features, and of the target if there is one
	outliers atomic.Pointer[[]Trouble]
	examined state // of the rows, when outliers were looked for
}

// Report implements Reporter.
func (m *sharedRows) Report() Report {
	all := m.rowMaker.Report()
	if found := m.outliers.Load(); found != nil {
		all.Troubles = append(all.Troubles, *found...)
	}
	return all
}

// examine searches for outliers again if the rows have grown by a tenth, or were replaced.
func (m *sharedRows) examine() {
	if m.examined.renew != m.renew {
		m.outliers.Store(nil)
	}
	if m.examined.renew == m.renew && m.rows < m.examined.rows+max(1, m.examined.rows/10) || m.raw.keepTail ||
		m.rows < minWarnValues {
		return
	}
	m.examined = m.state
	var found []Trouble
	for _, o := range learner.FindOutliers(m.raw.samples(m.rows)) {
		if o.Column < len(m.columns) { // else rows have no target
			found = append(found, Trouble{Outlier, fmt.Sprintf("column %q: %d of %d values lie far from the others, "+
				"such as %v, where the others are from %.4g to %.4g: if it stands for no value, add it to "+
				"data.missing_values, or set data.range", utf8Text(m.columns[o.Column]), o.N, m.rows, float32(o.Worst),
				o.Low, o.High)})
		}
	}
	m.outliers.Store(&found)
}

// state identifies a version of the rows.
type state struct {
	rows  int // of raw, in views
	renew int // how many times they were renewed
}

// anew discards all rows.
func (m *sharedRows) anew(raw *rawRows, why string) {
	if m.rows > 0 {
		m.renew++
		m.why = why
	}
	m.raw, m.rows = raw, 0
}

// fresh returns a place for rows like those of m.
func (m *sharedRows) fresh() *rawRows {
	return &rawRows{room: m.raw.room, features: m.raw.features, timed: m.raw.timed, keepTail: m.raw.keepTail}
}

// shared contains the rows of a source, keyed by the options of their callers.
type shared map[string]weak.Pointer[sharedRows]

// open returns the rows that are wanted, which make begins if nobody has them.
func (s *shared) open(w Want, make func() *sharedRows) Rows {
	key := fmt.Sprintf("%q %q %#v %t %v", w.Features, w.Target, w.Recipe, w.Early, w.Labels)
	if *s == nil {
		*s = shared{}
	}
	m := (*s)[key].Value()
	if m == nil {
		for key, p := range *s {
			if p.Value() == nil {
				delete(*s, key)
			}
		}
		m = make()
		m.columns = w.columns()
		(*s)[key] = weak.Make(m)
	}
	return &rows{of: m, want: w, looked: state{renew: m.renew}, renew: m.renew}
}

// rows implements Rows: those that were made, in a task's terms. While they are in memory these are copies; those of a
// file are brought into these terms whenever they are read.
type rows struct {
	of     *sharedRows
	want   Want
	looked state      // of the rows that were made, at the last snapshot
	renew  int        // as of made, when the rows below were
	ready  int        // rows that Prepare has seen
	x, y   []float32  // these, if they are in memory and there is a Prepare
	table  *fileTable // of these, if they are in a file
	all    int        // rows of the last view, with those that are gone
	view   View       // the last one
	why    string     // the rows of the last view were given up; until it is told
}

// Changed implements Rows.
func (r *rows) Changed() bool {
	return r.of.changed() || r.of.raw.err() != nil || r.looked != r.of.state
}

// Report implements Reporter.
func (r *rows) Report() Report { return r.of.Report() }

// Snapshot implements Rows.
func (r *rows) Snapshot() (View, error) {
	err := r.of.make(r.of)
	if err == nil {
		r.of.examine()
	}
	before := r.looked
	r.looked = r.of.state
	if err != nil {
		return View{}, err
	}
	if r.renew != r.of.renew {
		if r.all > 0 {
			r.why = r.of.why
		}
		r.renew, r.ready, r.x, r.y, r.table, r.all = r.of.renew, 0, nil, nil, nil, 0
	}
	if r.of.rows == 0 {
		return View{}, r.of.none(r.why)
	}
	if err := r.prepare(); err != nil {
		r.looked = before // they may be accepted later
		if r.of.name != "" {
			err = fmt.Errorf("%s: %w", r.of.name, err)
		}
		return View{}, err
	}
	if r.all != r.of.rows {
		r.all = r.of.rows
		r.view = View{Version: r.view.Version + 1, Rows: r.samples(), Times: r.of.raw.takenAt(r.all),
			Ahead: r.of.ahead, Renewed: r.why, lost: r.of.raw.err}
		r.why = ""
	}
	return r.view, nil
}

// samples are the rows that are ready.
func (r *rows) samples() *learner.Samples[float32] {
	raw := r.of.raw
	switch {
	case raw.file != nil:
		if r.table == nil || r.table.of != raw.file {
			r.table = &fileTable{of: raw.file, by: r.want.Prepare}
		}
		r.x, r.y = nil, nil
		return learner.NewTableSamples(raw.features, r.ready, learner.Table[float32](r.table))
	case r.want.Prepare != nil:
		return learner.NewSamples(raw.features, r.x, r.y)
	}
	return raw.samples(r.ready)
}

// prepare brings the rows that have come into the task's terms, or finds that they cannot be.
func (r *rows) prepare() error {
	raw, from, to := r.of.raw, r.ready, r.of.rows
	if r.want.Prepare == nil || from == to {
		r.ready = to
		return nil
	}
	n := raw.features
	if raw.file == nil {
		x, y := slices.Clone(raw.x[from*n:to*n]), slices.Clone(raw.y[from:to])
		if err := r.want.Prepare.Prepare(learner.NewSamples(n, x, y), from == 0); err != nil {
			return err
		}
		r.x, r.y, r.ready = append(r.x, x...), append(r.y, y...), to
		return nil
	}
	some := raw.samples(to).After(from).All()
	for at := from; at < to; at += prepareRows {
		b := some.Part(at-from, prepareRows)
		if err := raw.err(); err != nil {
			return err
		}
		if err := r.want.Prepare.Prepare(learner.NewSamples(n, b.X, b.Y), at == 0); err != nil {
			return err
		}
	}
	r.ready = to
	return nil
}

// prepareRows is how many rows of a file are prepared at a time.
const prepareRows = 1024
