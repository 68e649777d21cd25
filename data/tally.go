package data

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fedmesh/fedmesh/data/grid"
)

// tally is what rows that were read leave to those below them.
type tally struct {
	rows, matched int         // all, and those that the conditions select
	used, bad     int         // of the own share: those that are used, and those that cannot be
	recent        grid.Recent // of these
	newest        int64       // time of these
	cells         []cells     // of each wanted column, then of the time
	last          *Error      // of a row that cannot be used
}

// cells counts the cells of a column.
type cells struct {
	used   uint64
	unused map[Reason]uint64
	recent grid.Recent
	line   int // of the last cell that was not used
	sum    float64
	last   float64
	lastAt int64
}

// begin returns a copy for so many columns.
func (y tally) begin(columns int) tally {
	if y.cells == nil {
		y.cells = make([]cells, columns+1)
	}
	y.cells = slices.Clone(y.cells)
	for i := range y.cells {
		y.cells[i].unused = maps.Clone(y.cells[i].unused)
	}
	return y
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

func (c *cells) drop(why Reason, line int) {
	if c.unused == nil {
		c.unused = map[Reason]uint64{}
	}
	c.unused[why]++
	if why.Wrong() {
		c.recent.Take(true)
	}
	c.line = line
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
func (y *tally) report(file string, names []string, time string) Report {
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
		if c.line > 0 {
			e.Where = fmt.Sprintf("%s: line %d", file, c.line)
		}
		r.Columns = append(r.Columns, e)
	}
	return r
}
