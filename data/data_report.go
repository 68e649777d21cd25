package data

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/fedmesh/fedmesh/data/grid"
)

// QualityReporter is a Source, or Rows, that tells what came of its readings: Rows for their task, with what their
// source tells; a Source before there is one. Report may be called from any goroutine, and what it returns is the
// caller's.
type QualityReporter interface{ QualityReport() QualityReport }

// QualityReport counts what came and what was not used.
type QualityReport struct {
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
	NewestTime     int64  `json:"Newest"` // of their times, in nanoseconds since 1970
	// Unused has values, and under grid.ReasonGap and grid.ReasonNoLabel the rows that were not made for lack of one.
	Unused          map[UnusedReason]uint64
	LastUnusedWhere string // file and line, or topic or time, of the last value that was not used
	// LastUnusedProblem describes that value and its fault. It contains data and never leaves the device.
	LastUnusedProblem string `json:"Problem"`
	// LastUnusedByReason has the last unused value by reason. It is nil if the source keeps no values by reason.
	LastUnusedByReason map[UnusedReason]UnusedValue

	RecentWrongShare float64 `json:"-"` // the share of the last values that is wrong
}

// UnusedValue is the place of an unused value, or of a row that was not made, and a description of the value and its
// fault.
type UnusedValue struct{ Where, Problem string }

// String returns the place and the description, as far as they are known.
func (e UnusedValue) String() string {
	if e.Where == "" || e.Problem == "" {
		return e.Where + e.Problem
	}
	return e.Where + ": " + e.Problem
}

// LastUnusedValue returns the last unused value with the given reason. If the source keeps no values by reason, it
// returns the last unused value.
func (c *ColumnReport) LastUnusedValue(why UnusedReason) UnusedValue {
	if c.LastUnusedByReason == nil {
		return UnusedValue{c.LastUnusedWhere, c.LastUnusedProblem}
	}
	return c.LastUnusedByReason[why]
}

// UnusedReasons are those for which a value is not used, or a row is not made.
func UnusedReasons() []UnusedReason { return grid.UnusedReasons() }

// String tells the counts, as "40 used, 1 late, 2 out_of_range".
func (c ColumnReport) String() string {
	text := fmt.Sprintf("%d used", c.Used)
	for _, why := range slices.Sorted(maps.Keys(c.Unused)) {
		text += fmt.Sprintf(", %d %s", c.Unused[why], why)
	}
	return text
}

// String tells the columns, with their counts.
func (r QualityReport) String() string {
	all := make([]string, len(r.Columns))
	for i, c := range r.Columns {
		all[i] = c.Name + ": " + c.String()
	}
	return strings.Join(all, "; ")
}

// WrongValueSummary are values that cannot be used for a reason.
type WrongValueSummary struct {
	MainReason             UnusedReason // that most of them have
	WrongCount, TotalCount uint64
	RecentWrongShare       float64 // of the last ones: their share
}

// CurrentShare is that of all values, or of the last ones if it is less: what is mended need not wait until the past is
// outweighed.
func (b WrongValueSummary) CurrentShare() float64 {
	return min(float64(b.WrongCount)/max(1, float64(b.TotalCount)), b.RecentWrongShare)
}

// SummarizeWrongValues are the values of a column that are none.
func (c *ColumnReport) SummarizeWrongValues() WrongValueSummary {
	b, most := WrongValueSummary{TotalCount: c.Used, RecentWrongShare: c.RecentWrongShare}, uint64(0)
	for _, why := range UnusedReasons() {
		n := c.Unused[why]
		if !why.MeansWrongValue() {
			continue
		}
		if n > most {
			b.MainReason, most = why, n
		}
		b.WrongCount, b.TotalCount = b.WrongCount+n, b.TotalCount+n
	}
	return b
}

// EnsureColumn returns the report of a column, which it adds if there is none.
func (r *QualityReport) EnsureColumn(name string) *ColumnReport {
	i := slices.IndexFunc(r.Columns, func(c ColumnReport) bool { return c.Name == name })
	if i < 0 {
		i = len(r.Columns)
		r.Columns = append(r.Columns, ColumnReport{Name: name})
	}
	return &r.Columns[i]
}

// AddUnusedValueTroubles adds a trouble of the kind Unused for each column that has at least MinValuesForTrouble values
// and more than half of them rejected for another reason than being missing. If names is not nil, it checks only these
// columns.
func (r *QualityReport) AddUnusedValueTroubles(names []string) {
	for i := range r.Columns {
		c := &r.Columns[i]
		if names != nil && !slices.Contains(names, c.Name) {
			continue
		}
		all, left := c.Used, uint64(0)
		for why, n := range c.Unused {
			switch why {
			case grid.ReasonGap, grid.ReasonNoLabel: // these count rows
				continue
			case grid.ReasonMissing:
			default:
				left += n
			}
			all += n
		}
		if all < MinValuesForTrouble || 2*left <= all {
			continue
		}
		text := fmt.Sprintf("%q: %d of %d values are not used: %s", UTF8Text(c.Name), left, all, c)
		if c.LastUnusedProblem != "" {
			text += fmt.Sprintf("; the last: %s: %s", c.LastUnusedWhere, c.LastUnusedProblem)
		}
		r.Troubles = append(r.Troubles, SourceTrouble{TroubleUnusedValues, text})
	}
}

// MinValuesForTrouble is the minimum number of values, including missing ones, for a trouble of the kind Unused.
const MinValuesForTrouble = 10

// AddUnusedCount adds to the count of a reason.
func (c *ColumnReport) AddUnusedCount(why UnusedReason, n uint64) {
	if c.Unused == nil {
		c.Unused = map[UnusedReason]uint64{}
	}
	c.Unused[why] += n
}

// SetLastUnusedValue sets the last value with the given reason.
func (c *ColumnReport) SetLastUnusedValue(why UnusedReason, e UnusedValue) {
	if c.LastUnusedByReason == nil {
		c.LastUnusedByReason = map[UnusedReason]UnusedValue{}
	}
	c.LastUnusedByReason[why] = e
}

// AtomicQualityReport is the last report, which may be asked for from any goroutine.
type AtomicQualityReport struct{ last atomic.Pointer[QualityReport] }

// SetQualityReport replaces the report.
func (s *AtomicQualityReport) SetQualityReport(r QualityReport) { s.last.Store(&r) }

// QualityReport implements Reporter.
func (s *AtomicQualityReport) QualityReport() QualityReport {
	r := s.last.Load()
	if r == nil {
		return QualityReport{}
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

// The kinds of trouble. A new kind also needs its entry in troubleKindInfos and a line in the tables of docs/DATA.md.
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

// troubleKindInfo describes a kind.
type troubleKindInfo struct {
	kind                TroubleKind
	readingsStillArrive bool
	remedy              string
}

var troubleKindInfos = []troubleKindInfo{
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
	for _, k := range troubleKindInfos {
		all = append(all, k.kind)
	}
	return all
}

func (k TroubleKind) info() troubleKindInfo {
	for _, of := range troubleKindInfos {
		if of.kind == k {
			return of
		}
	}
	return troubleKindInfo{}
}

// ReadingsStillArrive reports whether readings arrive in spite of the trouble, but some of them are rejected or
// suspicious.
func (k TroubleKind) ReadingsStillArrive() bool { return k.info().readingsStillArrive }

// Remedy returns what the user of the device can do.
func (k TroubleKind) Remedy() string { return k.info().remedy }
