package data

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/fedmesh/fedmesh/data/grid"
)

// QualityReporter is a Source or a QueriedRows that reports the quality of its data. The report of QueriedRows includes
// the counts of their source. QualityReport may be called concurrently, and the caller may modify the result.
type QualityReporter interface{ QualityReport() QualityReport }

// QualityReport contains the numbers of received and rejected values.
type QualityReport struct {
	Rows, BadRows int // number of rows, and number of rows that could not be made or used
	// LargestWrongShare is the largest share of wrong lines in the file, or of wrong values of one input.
	// Config.MaxUnusableShare limits it.
	LargestWrongShare float64
	Columns           []ColumnReport
	// Troubles lists the current problems of the source; nil if the source has no problems.
	Troubles []SourceTrouble
}

// ColumnReport contains the counts of one column or input.
type ColumnReport struct {
	Name string
	// ReceivedValues is the number of values received. For values stored in a ring, it is the number since the program
	// started.
	ReceivedValues uint64
	Used           uint64 // number of values accepted for rows
	NewestTime     int64  `json:"Newest"` // time of the newest value, in nanoseconds since 1970
	// NewestValue is the value at NewestTime, for an input from which rows are made. It is nil for columns of files.
	// The value never leaves the device, except as a metric if metrics.values is set.
	NewestValue *float64 `json:"-"`
	// Unused contains the number of rejected values by reason. For grid.ReasonGap and grid.ReasonNoLabel it contains
	// the number of rows that were dropped because a value was missing.
	Unused          map[UnusedReason]uint64
	LastUnusedWhere string // file and line, or topic or time, of the last rejected value
	// LastUnusedProblem describes the last rejected value and its error. It contains data and never leaves the device.
	LastUnusedProblem string `json:"Problem"`
	// LastUnusedByReason contains the last rejected value by reason. It is nil if the source does not store values by
	// reason.
	LastUnusedByReason map[UnusedReason]UnusedValue

	RecentWrongShare float64        `json:"-"` // share of wrong values among the most recent ones
	UnusedRun        grid.UnusedRun `json:"-"`
}

// UnusedValue describes a rejected value or a dropped row by its location and the problem.
type UnusedValue struct{ Where, Problem string }

// String returns the place and the description of the problem, separated by a colon if both are known.
func (e UnusedValue) String() string {
	if e.Where == "" || e.Problem == "" {
		return e.Where + e.Problem
	}
	return e.Where + ": " + e.Problem
}

// LastUnusedValue returns the last value that was rejected for the given reason. If the source does not store values by
// reason, it returns the last rejected value.
func (c *ColumnReport) LastUnusedValue(why UnusedReason) UnusedValue {
	if c.LastUnusedByReason == nil {
		return UnusedValue{c.LastUnusedWhere, c.LastUnusedProblem}
	}
	return c.LastUnusedByReason[why]
}

// UnusedReasons returns all reasons for rejecting a value or dropping a row.
func UnusedReasons() []UnusedReason { return grid.UnusedReasons() }

// String returns the counts, for example "40 used, 1 late, 2 out_of_range".
func (c ColumnReport) String() string {
	text := fmt.Sprintf("%d used", c.Used)
	for _, why := range slices.Sorted(maps.Keys(c.Unused)) {
		text += fmt.Sprintf(", %d %s", c.Unused[why], why)
	}
	return text
}

// String returns the names and counts of all columns.
func (r QualityReport) String() string {
	all := make([]string, len(r.Columns))
	for i, c := range r.Columns {
		all[i] = c.Name + ": " + c.String()
	}
	return strings.Join(all, "; ")
}

// WrongValueSummary summarises the wrong values of a column.
type WrongValueSummary struct {
	MainReason             UnusedReason // most frequent reason for rejecting a value
	WrongCount, TotalCount uint64
	RecentWrongShare       float64 // share of wrong values among the most recent ones
}

// CurrentShare returns the share of wrong values among all values or among the most recent values, whichever is
// smaller. After a problem is solved, the share therefore falls soon.
func (b WrongValueSummary) CurrentShare() float64 {
	return min(float64(b.WrongCount)/max(1, float64(b.TotalCount)), b.RecentWrongShare)
}

// SummarizeWrongValues returns a summary of the wrong values of the column.
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

// EnsureColumn returns the report of a column. It adds an empty report if the column has none.
func (r *QualityReport) EnsureColumn(name string) *ColumnReport {
	i := slices.IndexFunc(r.Columns, func(c ColumnReport) bool { return c.Name == name })
	if i < 0 {
		i = len(r.Columns)
		r.Columns = append(r.Columns, ColumnReport{Name: name})
	}
	return &r.Columns[i]
}

// AddUnusedValueTroubles adds a trouble of the kind TroubleUnusedValues for each column whose latest values were
// rejected for unusually long. It also adds a trouble for each column that has at least MinValuesForTrouble values and
// rejected more than half of them for a reason other than being missing. If names is not nil, only columns with these
// names are checked.
func (r *QualityReport) AddUnusedValueTroubles(names []string) {
	for i := range r.Columns {
		c := &r.Columns[i]
		if names != nil && !slices.Contains(names, c.Name) {
			continue
		}
		all, left := c.Used, uint64(0)
		for why, n := range c.Unused {
			switch why {
			case grid.ReasonGap, grid.ReasonNoLabel: // these reasons count rows instead of values
				continue
			case grid.ReasonMissing:
			default:
				left += n
			}
			all += n
		}
		text := fmt.Sprintf("%q: %d of %d values are not used: %s", UTF8Text(c.Name), left, all, c)
		switch {
		case c.UnusedRun.IsUnusual():
			text = fmt.Sprintf("%q: the last %d values are not used: %s", UTF8Text(c.Name), c.UnusedRun.Count, c)
		case all < MinValuesForTrouble || 2*left <= all:
			continue
		}
		if c.LastUnusedProblem != "" {
			text += fmt.Sprintf("; most recently: %s: %s", c.LastUnusedWhere, c.LastUnusedProblem)
		}
		r.Troubles = append(r.Troubles, SourceTrouble{TroubleUnusedValues, text})
	}
}

// MinValuesForTrouble is the minimum number of values, including missing ones, for a trouble of the kind
// TroubleUnusedValues.
const MinValuesForTrouble = 10

// AddUnusedCount adds n to the count of the given reason.
func (c *ColumnReport) AddUnusedCount(why UnusedReason, n uint64) {
	if c.Unused == nil {
		c.Unused = map[UnusedReason]uint64{}
	}
	c.Unused[why] += n
}

// SetLastUnusedValue sets the last value that was rejected for the given reason.
func (c *ColumnReport) SetLastUnusedValue(why UnusedReason, e UnusedValue) {
	if c.LastUnusedByReason == nil {
		c.LastUnusedByReason = map[UnusedReason]UnusedValue{}
	}
	c.LastUnusedByReason[why] = e
}

// AtomicQualityReport stores the latest report. It may be used concurrently.
type AtomicQualityReport struct{ last atomic.Pointer[QualityReport] }

// SetQualityReport replaces the stored report.
func (s *AtomicQualityReport) SetQualityReport(r QualityReport) { s.last.Store(&r) }

// QualityReport returns a copy of the stored report.
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

// SourceTrouble is a problem of a source that prevents readings from arriving, or that makes readings doubtful.
type SourceTrouble struct {
	Kind TroubleKind
	Text string
}

// TroubleKind is a kind of trouble. It is also a label value of a metric.
type TroubleKind string

// Kinds of trouble. A new kind also requires an entry in troubleKindInfos and a line in the tables of docs/DATA.md.
const (
	TroubleSilent  TroubleKind = "silent"  // no reading of an input has arrived for some time
	TroubleBroker  TroubleKind = "broker"  // the site's broker is unreachable or refuses a topic
	TroubleCommand TroubleKind = "command" // a command has ended, or a pipe was closed
	TroubleStorage TroubleKind = "storage" // the ring cannot be written or read
	// TroubleUnusedValues means that more than half of the values of an input are late, duplicate or invalid. It is
	// also reported if a file or its end cannot be read, or if lines have more fields than the header.
	TroubleUnusedValues TroubleKind = "unused"
	TroubleOutlier      TroubleKind = "outlier"   // a few values of a column are far from all others
	TroubleOversized    TroubleKind = "oversized" // messages of a topic were dropped because they were too large
)

// troubleKindInfo contains the properties of a kind of trouble.
type troubleKindInfo struct {
	kind                TroubleKind
	readingsStillArrive bool
	remedy              string
}

var troubleKindInfos = []troubleKindInfo{
	{TroubleSilent, false, "check the sensor and its topic, and the names in data.columns"},
	{TroubleBroker, false, "start the site's MQTT broker, or correct readings.broker"},
	{TroubleCommand, false, "start the command, or correct data.command"},
	{TroubleStorage, false, "free space on the disk of state_dir"},
	{TroubleUnusedValues, true, "list the values with `agentd data check`"},
	{TroubleOutlier, true, "list the values with `agentd data check`"},
	{TroubleOversized, true, "replace the wildcard topics in section data with individual topics"},
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

// ReadingsStillArrive reports whether readings still arrive despite the trouble, although some of them are rejected or
// suspicious.
func (k TroubleKind) ReadingsStillArrive() bool { return k.info().readingsStillArrive }

// Remedy returns the action that the user of the device can take.
func (k TroubleKind) Remedy() string { return k.info().remedy }
