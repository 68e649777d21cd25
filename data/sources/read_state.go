package sources

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/rows"
)

// csvReadCounts contains the counts of the rows read so far, and the state that is needed to read further rows.
type csvReadCounts struct {
	rows, matched       int                   // number of rows, and number of rows that the conditions select
	used, unusable      int                   // numbers of used and unusable rows of this share
	malformedLineCount  int                   // number of lines that cannot be parsed; included in unusable
	recentUnusableShare grid.RecentWrongShare // share of unusable rows among the most recent ones
	newestRowTime       int64                 // newest time of a row, without outliers
	order               *rows.TimeOrderCheck  // check of the times; nil without times, or if gridRowMaker checks them
	columnCounts        []columnCounts        // counts of each required column, then of the time
	lastUnusableRowErr  *data.FileError       // error of the last unusable row
	targetFilter        rows.TargetFilter
}

// columnCounts contains the counts of the cells of one column.
type columnCounts struct {
	used                 uint64
	unused               map[data.UnusedReason]uint64
	recentWrongShare     grid.RecentWrongShare
	lastRejectedCell     rejectedCell                       // last rejected cell
	lastRejectedByReason map[data.UnusedReason]rejectedCell // last rejected cell by reason
	sumOfValues          float64
	lastValue            float64
	lastValueTime        int64
}

type rejectedCell struct {
	file string
	line int
	text string
	why  data.UnusedReason
}

// clone returns a copy, so that the reading of the following lines can be undone later.
func (y *csvReadCounts) clone() csvReadCounts {
	n := *y
	n.columnCounts = slices.Clone(y.columnCounts)
	for i := range n.columnCounts {
		c := &n.columnCounts[i]
		c.unused, c.lastRejectedByReason = maps.Clone(c.unused), maps.Clone(c.lastRejectedByReason)
	}
	if y.order != nil {
		n.order = y.order.Clone()
	}
	return n
}

// allocateColumnCounts allocates the counts of the given number of columns and of the time, unless they exist.
func (y *csvReadCounts) allocateColumnCounts(columns int) {
	if y.columnCounts == nil {
		y.columnCounts = make([]columnCounts, columns+1)
	}
}

// countUnusableRow counts an unusable row and stores its error.
func (y *csvReadCounts) countUnusableRow(why *data.FileError) {
	y.unusable++
	y.recentUnusableShare.CountValue(true)
	y.lastUnusableRowErr = why
}

func (c *columnCounts) addValue(v float64, at int64) {
	c.countUsedCell()
	c.sumOfValues += v
	c.lastValue, c.lastValueTime = v, at
}

func (c *columnCounts) countUsedCell() {
	c.used++
	c.recentWrongShare.CountValue(false)
}

func (c *columnCounts) countRejectedCell(bad rejectedCell) {
	why := bad.why
	if c.unused == nil {
		c.unused, c.lastRejectedByReason = map[data.UnusedReason]uint64{}, map[data.UnusedReason]rejectedCell{}
	}
	c.unused[why]++
	if why.MeansWrongValue() {
		c.recentWrongShare.CountValue(true)
	}
	bad.text = strings.Clone(bad.text) // copy the text, which otherwise keeps its whole line in memory
	c.lastRejectedCell, c.lastRejectedByReason[why] = bad, bad
}

// unusedValue returns the place and description of a rejected cell.
func (c rejectedCell) unusedValue() data.UnusedValue {
	return data.UnusedValue{Where: fmt.Sprintf("%s: line %d", c.file, c.line), Problem: data.DescribeCellProblem(c.text,
		c.why)}
}

// fillValue returns the replacement for a cell without a value. It returns false if no replacement is available.
func (c *columnCounts) fillValue(f grid.FillRule, at int64) (float64, bool) {
	switch {
	case c.used == 0:
	case f.Policy == grid.FillLast && at-c.lastValueTime <= int64(f.MaxLastValueAge):
		return c.lastValue, true
	case f.Policy == grid.FillMean:
		return c.sumOfValues / float64(c.used), true
	}
	return 0, false
}

// checkUnusableShare returns an error if the share of unusable rows exceeds most.
func (y *csvReadCounts) checkUnusableShare(most float64) error {
	if all := y.used + y.unusable; y.unusable > 0 && y.unusableShare() > most {
		e := *y.lastUnusableRowErr
		e.BadCount, e.TotalCount = uint64(y.unusable), uint64(all)
		e.Problem += fmt.Sprintf("; %d of %d rows are unusable, which exceeds data.max_bad (%g)", y.unusable, all,
			most)
		return &e
	}
	return nil
}

// unusableShare returns the share of unusable rows; see [data.WrongValueSummary.CurrentShare].
func (y *csvReadCounts) unusableShare() float64 {
	return min(float64(y.unusable)/max(1, float64(y.used+y.unusable)), y.recentUnusableShare.Share())
}

// qualityReport returns a report of the counts. names contains the column names, and time the name of the time column.
func (y *csvReadCounts) qualityReport(names []string, time string) data.QualityReport {
	r := data.QualityReport{Rows: y.used, BadRows: y.unusable, LargestWrongShare: y.unusableShare()}
	for i, c := range y.columnCounts {
		e := data.ColumnReport{ReceivedValues: c.used, Used: c.used, Unused: maps.Clone(c.unused),
			NewestTime:       c.lastValueTime,
			RecentWrongShare: c.recentWrongShare.Share()}
		for _, n := range c.unused {
			e.ReceivedValues += n
		}
		switch {
		case i < len(names):
			e.Name = names[i]
		case c.unused == nil:
			continue
		default:
			e.Name = time
		}
		if c.lastRejectedCell.line > 0 {
			last := c.lastRejectedCell.unusedValue()
			e.LastUnusedWhere, e.LastUnusedProblem = last.Where, last.Problem
		}
		for why, bad := range c.lastRejectedByReason {
			e.SetLastUnusedValue(why, bad.unusedValue())
		}
		r.Columns = append(r.Columns, e)
	}
	return r
}
