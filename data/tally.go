package data

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/data/grid"
)

// tally is what rows that were read leave to those below them.
type tally struct {
	rows, matched int         // all, and those that the conditions select
	used, bad     int         // of the own share: those that are used, and those that cannot be
	malformed     int         // of these, lines that cannot be parsed
	recent        grid.Recent // of these
	newest        int64       // of the times that were read, but for those that are ahead
	order         *order      // of the times; nil if there are none, or a grid judges them
	cells         []cells     // of each wanted column, then of the time
	last          *Error      // of a row that cannot be used
	labels        labelCount
}

// cells counts the cells of a column.
type cells struct {
	used   uint64
	unused map[Reason]uint64
	recent grid.Recent
	bad    cell // the last one that was not used
	sum    float64
	last   float64
	lastAt int64
}

// cell is a cell of a file that was not used.
type cell struct {
	file string
	line int
	text string
	why  Reason
}

// clone returns a copy for lines that may have to be taken back.
func (y *tally) clone() tally {
	n := *y
	n.cells = slices.Clone(y.cells)
	for i := range n.cells {
		n.cells[i].unused = maps.Clone(n.cells[i].unused)
	}
	if y.order != nil {
		n.order = y.order.clone()
	}
	return n
}

// begin makes the cells of so many columns, unless there are any.
func (y *tally) begin(columns int) {
	if y.cells == nil {
		y.cells = make([]cells, columns+1)
	}
}

// drop counts a row that cannot be used.
func (y *tally) drop(why *Error) {
	y.bad++
	y.recent.Take(true)
	y.last = why
}

func (c *cells) take(v float64, at int64) {
	c.use()
	c.sum += v
	c.last, c.lastAt = v, at
}

func (c *cells) use() {
	c.used++
	c.recent.Take(false)
}

func (c *cells) drop(bad cell) {
	why := bad.why
	if c.unused == nil {
		c.unused = map[Reason]uint64{}
	}
	c.unused[why]++
	if why.Wrong() {
		c.recent.Take(true)
	}
	bad.text = strings.Clone(bad.text) // it holds its line
	c.bad = bad
}

// fill returns what stands for a cell without a value.
func (c *cells) fill(f grid.Fill, at int64) (float64, bool) {
	switch {
	case c.used == 0:
	case f.Policy == grid.Last && at-c.lastAt <= int64(f.AtMost):
		return c.last, true
	case f.Policy == grid.Mean:
		return c.sum / float64(c.used), true
	}
	return 0, false
}

// check returns an error if more than a share of the rows cannot be used.
func (y *tally) check(most float64) error {
	if all := y.used + y.bad; y.bad > 0 && y.share() > most {
		e := *y.last
		e.Bad, e.All = uint64(y.bad), uint64(all)
		e.Problem += fmt.Sprintf("; %d of %d rows cannot be used, more than data.max_bad (%g) allows", y.bad, all, most)
		return &e
	}
	return nil
}

// share is that of the rows that cannot be used; see [bad.share].
func (y *tally) share() float64 {
	return min(float64(y.bad)/max(1, float64(y.used+y.bad)), y.recent.Share())
}

// report returns the counts. names are those of the columns.
func (y *tally) report(names []string, time string) Report {
	r := Report{Rows: y.used, Bad: y.bad, Share: y.share()}
	for i, c := range y.cells {
		e := ColumnReport{Came: c.used, Used: c.used, Unused: maps.Clone(c.unused), Newest: c.lastAt,
			recent: c.recent.Share()}
		for _, n := range c.unused {
			e.Came += n
		}
		switch {
		case i < len(names):
			e.Name = names[i]
		case c.unused == nil:
			continue
		default:
			e.Name = time
		}
		if c.bad.line > 0 {
			e.Where = fmt.Sprintf("%s: line %d", c.bad.file, c.bad.line)
			e.Problem = problem(c.bad.text, c.bad.why)
		}
		r.Columns = append(r.Columns, e)
	}
	return r
}
