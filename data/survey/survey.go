package survey

import (
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/rows"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// StoredSource is a source as it is on the disk: a file, or the readings that a [data.ReadingCollector] has kept. It
// collects nothing, so a collector may run meanwhile.
type StoredSource interface {
	data.Source
	// SourceSurvey reads all of it and describes it. w says what is wanted of it; nil if nobody knows.
	Survey(w *data.RowQuery) *SourceSurvey
}

// SourceSurvey describes a source for a person: each fault, and each column. It is bounded, whatever the source has.
type SourceSurvey struct {
	SourcePath      string          `json:"source"` // the file, or the folder of the ring
	LineCount       int             `json:"lines"`  // of a file, below the header; or readings
	EarliestTime    time.Time       `json:"first,omitzero"`
	LatestTime      time.Time       `json:"last,omitzero"` // of the times
	Columns         []ColumnSummary `json:"columns"`
	UnwantedColumns []string        `json:"others,omitempty"` // names that are not wanted
	// ConfigChanges are what the section needs for the file. If there are any, all else is as if they were made.
	ConfigChanges []SuggestedConfigChange `json:"changes,omitempty"`
	Faults        []*DataFaultGroup       `json:"faults,omitempty"`
}

// DataFaultGroup are those of a column that have the same reason.
type DataFaultGroup struct {
	Column      string            `json:"column,omitempty"` // its name in the task; "" = of the whole source
	Reason      data.UnusedReason `json:"reason"`
	Count       int               `json:"count"`
	FirstFaults []DataFault       `json:"first"`               // the first ones
	LastLine    int               `json:"last_line,omitempty"` // line of the last one
	// LastFile is the file of the last one, if the source has several; empty = the source.
	LastFile string `json:"last_file,omitempty"`
	Remedy   string `json:"mend,omitempty"` // what to do, if that is known
}

// DataFault is a place, and what is wrong there.
type DataFault struct {
	File    string `json:"file,omitempty"`   // the file, if the source has several; empty = the source
	Line    int    `json:"line,omitempty"`   // from 1; 0 = of the whole source
	Column  int    `json:"column,omitempty"` // byte in the line, from 1; 0 = the whole line
	Problem string `json:"problem"`
}

// The reasons that only a survey has.
const (
	ReasonUnreadable data.UnusedReason = "unreadable" // nothing of the source can be read, or not all
	// A part of what was recorded is not what was written: it is left out.
	ReasonDamaged         data.UnusedReason = "damaged"
	ReasonNothingRecorded data.UnusedReason = "unrecorded" // there is no ring yet
	ReasonNoColumn        data.UnusedReason = "no_column"  // the header lacks it, or has it twice
	// ReasonAddedFields means that lines have more fields than the header names, and the last ones are not used.
	ReasonAddedFields data.UnusedReason = "added_fields"
)

// MaxFaultsPerGroup is how many faults of a column and a reason are told.
const MaxFaultsPerGroup = 20

// AddFault adds a fault.
func (s *SourceSurvey) AddFault(column string, why data.UnusedReason, f DataFault) *DataFaultGroup {
	i := slices.IndexFunc(s.Faults, func(of *DataFaultGroup) bool { return of.Column == column && of.Reason == why })
	if i < 0 {
		i = len(s.Faults)
		s.Faults = append(s.Faults, &DataFaultGroup{Column: column, Reason: why})
	}
	of := s.Faults[i]
	of.Count++
	of.LastLine, of.LastFile = f.Line, f.File
	if len(of.FirstFaults) < MaxFaultsPerGroup {
		of.FirstFaults = append(of.FirstFaults, f)
	}
	return of
}

// AddReadFailure adds what keeps the source from being read.
func (s *SourceSurvey) AddReadFailure(err error) {
	f := DataFault{Problem: err.Error()}
	if bad, ok := err.(*data.FileError); ok { //nolint:errorlint // a wrapped one says more
		// a file of a folder or a pattern
		if f = (DataFault{Line: bad.Line, Problem: bad.Problem}); bad.File != s.SourcePath {
			f.File = bad.File
		}
	}
	s.AddFault("", ReasonUnreadable, f)
}

// ExtendTimeRange notes the time of a line or a reading.
func (s *SourceSurvey) ExtendTimeRange(at int64) {
	t := time.Unix(0, at).UTC()
	if s.EarliestTime.IsZero() || t.Before(s.EarliestTime) {
		s.EarliestTime = t
	}
	if t.After(s.LatestTime) {
		s.LatestTime = t
	}
}

// ColumnSurvey is a column, or an input, of a survey.
type ColumnSurvey struct {
	ColumnSummary
	NumberStats   runningStats
	ClassCounts   []int      // how many values had each
	TextCounts    textCounts // in place of numbers
	CheckReading  func(data.Reading) (float64, data.UnusedReason)
	labelLateness time.Duration // of a label
	IsFoundInFile bool          // a file has the column
}

// NewColumnSurvey returns a column of which only the name is known.
func NewColumnSurvey(name string) *ColumnSurvey {
	return &ColumnSurvey{ColumnSummary: ColumnSummary{Name: name}}
}

// NewInputColumnSurvey returns the column of a task's input, whose values are judged by the rules.
func NewInputColumnSurvey(in spec.InputSeries, by rows.ValueRules) *ColumnSurvey {
	c := NewColumnSurvey(in.Name)
	c.Unit, c.Texts, c.labelLateness, c.CheckReading = in.Unit, in.Classes, in.LabelLateness,
		grid.NewReadingCheck(in, by.MissingValues, by.RangeByInput[in.Name])
	c.ClassCounts = make([]int, len(in.Classes))
	return c
}

// CountReading counts a reading, or returns why it is not used. Those before mark are late.
func (c *ColumnSurvey) CountReading(r data.Reading, mark int64) data.UnusedReason {
	v, why := c.CheckReading(r)
	if why == "" && r.Time < mark-int64(c.labelLateness) {
		why = grid.ReasonLate
	}
	switch {
	case why == grid.ReasonMissing:
		c.Missing++
	case why != "":
		c.Unused++
	case len(c.ClassCounts) > 0:
		c.ClassCounts[int(v)]++
		c.NumberStats.Count++
	default:
		c.NumberStats.AddValue(v)
	}
	return why
}

// Summary is what is told of a column.
func (c *ColumnSurvey) Summary() ColumnSummary {
	s := c.ColumnSummary
	switch {
	case len(c.ClassCounts) > 0:
		s.Used, s.Histogram = c.NumberStats.Count, c.ClassCounts
	case c.HasMostlyTexts():
		s.Used, s.Unused, s.Texts, s.Histogram = c.TextCounts.Count, c.NumberStats.Count, c.TextCounts.distinctTexts,
			c.TextCounts.counts
	default:
		c.NumberStats.writeToSummary(&s)
	}
	return s
}

// HasMostlyTexts reports whether a column of which nobody knows better is of texts.
func (c *ColumnSurvey) HasMostlyTexts() bool {
	return c.CheckReading == nil && c.TextCounts.Count > c.NumberStats.Count
}

// NeededInputs returns the inputs that the columns of a task are made of.
func NeededInputs(w *data.RowQuery) []spec.InputSeries {
	used := w.Inputs()
	return slices.DeleteFunc(slices.Clone(w.Recipe.Inputs), func(in spec.InputSeries) bool {
		return !slices.Contains(used, in.Name)
	})
}

// SuggestedConfigChange is a key of the section, and the value that it needs.
type SuggestedConfigChange struct {
	Key    string `json:"key"` // without that of the section: delimiter; "" = the file itself is to be changed
	Value  string `json:"value"`
	Reason string `json:"why"`
}

// RowsDescription is what a source gives for a task.
type RowsDescription struct {
	Snapshot      data.RowSnapshot
	Columns       []ColumnSummary // of the rows as they are made: the features, then the target if there is one
	QualityReport data.QualityReport
}

// DescribeRows has a source make its rows, and describes them.
func DescribeRows(s data.Source, w data.RowQuery) (m RowsDescription, err error) {
	by := &measuringPreparer{w.Preparer, make([]runningStats, len(w.Features)+1)}
	w.Preparer = by
	rows := s.OpenRows(w)
	m.Snapshot, err = rows.Snapshot()
	for i, name := range w.Columns() {
		c := ColumnSummary{Name: name}
		by.columns[i].writeToSummary(&c)
		m.Columns = append(m.Columns, c)
	}
	if r, ok := rows.(data.QualityReporter); ok {
		m.QualityReport = r.QualityReport()
	}
	return m, err
}

// measuringPreparer measures rows as they are made.
type measuringPreparer struct {
	data.RowPreparer // may be nil
	columns          []runningStats
}

// Prepare implements Preparer.
func (m *measuringPreparer) PrepareSamples(fresh *learner.Samples[float32], first bool) error {
	if first {
		clear(m.columns)
	}
	for i := range fresh.Len() {
		x, y := fresh.Row(i)
		for j, v := range x {
			m.columns[j].AddValue(float64(v))
		}
		m.columns[len(x)].AddValue(float64(y))
	}
	if m.RowPreparer == nil {
		return nil
	}
	return m.RowPreparer.PrepareSamples(fresh, first)
}

// PrepareAgain implements Preparer.
func (m *measuringPreparer) PrepareRowsAgain(x, y []float32) {
	if m.RowPreparer != nil {
		m.RowPreparer.PrepareRowsAgain(x, y)
	}
}

// ApplyConfigChanges returns the section with changes.
func ApplyConfigChanges(c *data.Config, changes []SuggestedConfigChange) *data.Config {
	n := *c
	for _, change := range changes {
		switch change.Key {
		case "delimiter":
			n.Delimiter = change.Value
		case "decimal":
			n.DecimalSeparator = change.Value
		case "time_format":
			n.TimeFormat = change.Value
		}
	}
	return &n
}
