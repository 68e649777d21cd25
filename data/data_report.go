package data

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/fedmesh/fedmesh/data/grid"
)

// Reporter is a Source, or Rows, that tells what came of its readings: Rows for their task, with what their source
// tells; a Source before there is one. Report may be called from any goroutine, and what it returns is the caller's.
type Reporter interface{ Report() Report }

// Report counts what came and what was not used.
type Report struct {
	Rows, BadRows int // rows, and those that could not be made or used
	// LargestWrongShare is the largest one that is wrong, of the lines or of the values of an input:
	// Config.MaxUnusableShare bounds it.
	LargestWrongShare float64
	Columns           []ColumnReport
	// Troubles are what keeps readings from coming, at this moment; nil if nothing does.
	Troubles []SourceTrouble
}

// ColumnReport is a Report of a column, or of an input.
type ColumnReport struct {
	Name           string
	ReceivedValues uint64 // values, used or not; in a ring, since the start
	Used           uint64 // values that rows may be made of
	Newest         int64  // of their times, in nanoseconds since 1970
	// Unused has values, and under grid.Gap and grid.NoLabel the rows that were not made for lack of one.
	Unused          map[Reason]uint64
	LastUnusedWhere string // file and line, or topic or time, of the last value that was not used
	// Problem describes that value and its fault. It contains data and never leaves the device.
	Problem string
	// LastUnusedByReason has the last unused value by reason. It is nil if the source keeps no values by reason.
	LastUnusedByReason map[Reason]UnusedExample

	RecentWrongShare float64 `json:"-"` // the share of the last values that is wrong
}

// UnusedExample is the place of an unused value, or of a row that was not made, and a description of the value and its
// fault.
type UnusedExample struct{ Where, Problem string }

// String returns the place and the description, as far as they are known.
func (e UnusedExample) String() string {
	if e.Where == "" || e.Problem == "" {
		return e.Where + e.Problem
	}
	return e.Where + ": " + e.Problem
}

// Example returns the last unused value with the given reason. If the source keeps no values by reason, it returns the
// last unused value.
func (c *ColumnReport) Example(why Reason) UnusedExample {
	if c.LastUnusedByReason == nil {
		return UnusedExample{c.LastUnusedWhere, c.Problem}
	}
	return c.LastUnusedByReason[why]
}

// Reasons are those for which a value is not used, or a row is not made.
func Reasons() []Reason { return grid.Reasons() }

// String tells the counts, as "40 used, 1 late, 2 out_of_range".
func (c ColumnReport) String() string {
	text := fmt.Sprintf("%d used", c.Used)
	for _, why := range slices.Sorted(maps.Keys(c.Unused)) {
		text += fmt.Sprintf(", %d %s", c.Unused[why], why)
	}
	return text
}

// String tells the columns, with their counts.
func (r Report) String() string {
	all := make([]string, len(r.Columns))
	for i, c := range r.Columns {
		all[i] = c.Name + ": " + c.String()
	}
	return strings.Join(all, "; ")
}

// BadValues are values that cannot be used for a reason.
type BadValues struct {
	MainReason             Reason // that most of them have
	WrongCount, TotalCount uint64
	RecentWrongShare       float64 // of the last ones: their share
}

// Share is that of all values, or of the last ones if it is less: what is mended need not wait until the past is
// outweighed.
func (b BadValues) Share() float64 {
	return min(float64(b.WrongCount)/max(1, float64(b.TotalCount)), b.RecentWrongShare)
}

// WrongValues are the values of a column that are none.
func (c *ColumnReport) WrongValues() BadValues {
	b, most := BadValues{TotalCount: c.Used, RecentWrongShare: c.RecentWrongShare}, uint64(0)
	for _, why := range Reasons() {
		n := c.Unused[why]
		if !why.Wrong() {
			continue
		}
		if n > most {
			b.MainReason, most = why, n
		}
		b.WrongCount, b.TotalCount = b.WrongCount+n, b.TotalCount+n
	}
	return b
}

// Column returns the report of a column, which it adds if there is none.
func (r *Report) Column(name string) *ColumnReport {
	i := slices.IndexFunc(r.Columns, func(c ColumnReport) bool { return c.Name == name })
	if i < 0 {
		i = len(r.Columns)
		r.Columns = append(r.Columns, ColumnReport{Name: name})
	}
	return &r.Columns[i]
}

// AddUnusedTroubles adds a trouble of the kind Unused for each column that has at least MinWarnValues values and more
// than half of them rejected for another reason than being missing. If names is not nil, it checks only these columns.
func (r *Report) AddUnusedTroubles(names []string) {
	for i := range r.Columns {
		c := &r.Columns[i]
		if names != nil && !slices.Contains(names, c.Name) {
			continue
		}
		all, left := c.Used, uint64(0)
		for why, n := range c.Unused {
			switch why {
			case grid.Gap, grid.NoLabel: // these count rows
				continue
			case grid.Missing:
			default:
				left += n
			}
			all += n
		}
		if all < MinWarnValues || 2*left <= all {
			continue
		}
		text := fmt.Sprintf("%q: %d of %d values are not used: %s", UTF8Text(c.Name), left, all, c)
		if c.Problem != "" {
			text += fmt.Sprintf("; the last: %s: %s", c.LastUnusedWhere, c.Problem)
		}
		r.Troubles = append(r.Troubles, SourceTrouble{TroubleUnusedValues, text})
	}
}

// MinWarnValues is the minimum number of values, including missing ones, for a trouble of the kind Unused.
const MinWarnValues = 10

// AddUnused adds to the count of a reason.
func (c *ColumnReport) AddUnused(why Reason, n uint64) {
	if c.Unused == nil {
		c.Unused = map[Reason]uint64{}
	}
	c.Unused[why] += n
}

// SetExample sets the last value with the given reason.
func (c *ColumnReport) SetExample(why Reason, e UnusedExample) {
	if c.LastUnusedByReason == nil {
		c.LastUnusedByReason = map[Reason]UnusedExample{}
	}
	c.LastUnusedByReason[why] = e
}

// LatestReport is the last report, which may be asked for from any goroutine.
type LatestReport struct{ last atomic.Pointer[Report] }

// SetReport replaces the report.
func (s *LatestReport) SetReport(r Report) { s.last.Store(&r) }

// Report implements Reporter.
func (s *LatestReport) Report() Report {
	r := s.last.Load()
	if r == nil {
		return Report{}
	}
	all := *r
	all.Columns = slices.Clone(all.Columns)
	for i := range all.Columns {
		c := &all.Columns[i]
		c.Unused, c.LastUnusedByReason = maps.Clone(c.Unused), maps.Clone(c.LastUnusedByReason)
	}
	return all
}

// SourceTrouble is a reason why readings do not arrive, or are doubtful.
type SourceTrouble struct {
	Kind TroubleKind
	Text string
}

// TroubleKind is a kind of trouble. It is a metric's label.
type TroubleKind string

// The kinds of trouble. A new kind also needs its entry in kindsOfTrouble and a line in the tables of docs/DATA.md.
const (
	TroubleSilent  TroubleKind = "silent"  // no reading of an input has arrived for a while
	TroubleBroker  TroubleKind = "broker"  // the site's broker is unreachable, or refuses a topic
	TroubleCommand TroubleKind = "command" // a command has ended, or a pipe was closed
	TroubleStorage TroubleKind = "storage" // the ring cannot be written or read
	// TroubleUnusedValues means that more than half of the values of an input are late, duplicate or invalid, that a
	// file or its end cannot be read, or that lines have fields that the header does not name.
	TroubleUnusedValues TroubleKind = "unused"
	TroubleOutlier      TroubleKind = "outlier"   // a few values of a column lie far from all others
	TroubleOversized    TroubleKind = "oversized" // messages of a topic were dropped because of their size
)

// kindOfTrouble describes a kind.
type kindOfTrouble struct {
	kind     TroubleKind
	doubtful bool
	remedy   string
}

var kindsOfTrouble = []kindOfTrouble{
	{TroubleSilent, false, "check the sensor and its topic, and the names in data.columns"},
	{TroubleBroker, false, "start the site's broker, or correct readings.broker"},
	{TroubleCommand, false, "start the command, or correct data.command"},
	{TroubleStorage, false, "free space on the disk of state_dir"},
	{TroubleUnusedValues, true, "see the values with `agentd data check`"},
	{TroubleOutlier, true, "see the values with `agentd data check`"},
	{TroubleOversized, true, "write the topics in the section data without a wildcard"},
}

// TroubleKinds returns all kinds.
func TroubleKinds() (all []TroubleKind) {
	for _, k := range kindsOfTrouble {
		all = append(all, k.kind)
	}
	return all
}

func (k TroubleKind) describe() kindOfTrouble {
	for _, of := range kindsOfTrouble {
		if of.kind == k {
			return of
		}
	}
	return kindOfTrouble{}
}

// Doubtful reports whether readings arrive in spite of the trouble, but some of them are rejected or suspicious.
func (k TroubleKind) Doubtful() bool { return k.describe().doubtful }

// Remedy returns what the user of the device can do.
func (k TroubleKind) Remedy() string { return k.describe().remedy }
