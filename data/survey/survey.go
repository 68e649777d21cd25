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

// StoredSource is the stored data of a source: a file, or the ring of a [data.ReadingCollector]. Reading a StoredSource
// collects no new readings, so a collector may run at the same time.
type StoredSource interface {
	data.Source
	// Survey reads and describes the whole source. w is the query of a task; nil if no task is known.
	Survey(w *data.RowQuery) *SourceSurvey
}

// SourceSurvey describes the columns and faults of a source. Its size is bounded for a source of any size.
type SourceSurvey struct {
	SourcePath      string          `json:"source"` // path of the file, or of the folder of the ring
	LineCount       int             `json:"lines"`  // number of lines below the header, or of readings
	EarliestTime    time.Time       `json:"first,omitzero"`
	LatestTime      time.Time       `json:"last,omitzero"` // latest time of a line or reading
	Columns         []ColumnSummary `json:"columns"`
	UnwantedColumns []string        `json:"others,omitempty"` // names of columns that the query does not require
	// ConfigChanges lists the changes of the configuration section that the file requires. The other fields are
	// computed as if these changes had been made.
	ConfigChanges []SuggestedConfigChange `json:"changes,omitempty"`
	Faults        []*DataFaultGroup       `json:"faults,omitempty"`
}

// DataFaultGroup contains the faults of one column with the same reason.
type DataFaultGroup struct {
	Column      string            `json:"column,omitempty"` // name in the task; empty means the whole source
	Reason      data.UnusedReason `json:"reason"`
	Count       int               `json:"count"`
	FirstFaults []DataFault       `json:"first"`               // first faults of the group
	LastLine    int               `json:"last_line,omitempty"` // line of the last fault
	// LastFile is the file of the last fault if the source has several files; otherwise empty.
	LastFile string `json:"last_file,omitempty"`
	Remedy   string `json:"mend,omitempty"` // advice for the user, if known
}

// DataFault is a single fault with its place.
type DataFault struct {
	File    string `json:"file,omitempty"`   // file of the fault if the source has several files; otherwise empty
	Line    int    `json:"line,omitempty"`   // line number from 1; 0 means the whole source
	Column  int    `json:"column,omitempty"` // byte offset in the line from 1; 0 means the whole line
	Problem string `json:"problem"`
}

// Reasons that only a survey reports.
const (
	ReasonUnreadable data.UnusedReason = "unreadable" // the source, or a part of it, cannot be read
	// ReasonDamaged means that stored data is damaged. The damaged part is skipped.
	ReasonDamaged         data.UnusedReason = "damaged"
	ReasonNothingRecorded data.UnusedReason = "unrecorded" // no ring exists yet
	ReasonNoColumn        data.UnusedReason = "no_column"  // the header lacks the column or contains it twice
	// ReasonAddedFields means that lines have more fields than the header. The last fields are ignored.
	ReasonAddedFields data.UnusedReason = "added_fields"
)

// MaxFaultsPerGroup is the maximum number of faults listed per column and reason.
const MaxFaultsPerGroup = 20

// AddFault adds a fault and returns its group.
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

// AddReadFailure adds a fault for an error that prevents reading the source.
func (s *SourceSurvey) AddReadFailure(err error) {
	f := DataFault{Problem: err.Error()}
	if bad, ok := err.(*data.FileError); ok { //nolint:errorlint // a wrapped one says more
		// The file is one of several in a folder or matched by a pattern.
		if f = (DataFault{Line: bad.Line, Problem: bad.Problem}); bad.File != s.SourcePath {
			f.File = bad.File
		}
	}
	s.AddFault("", ReasonUnreadable, f)
}

// ExtendTimeRange extends the time range of the survey to the time of a line or reading.
func (s *SourceSurvey) ExtendTimeRange(at int64) {
	t := time.Unix(0, at).UTC()
	if s.EarliestTime.IsZero() || t.Before(s.EarliestTime) {
		s.EarliestTime = t
	}
	if t.After(s.LatestTime) {
		s.LatestTime = t
	}
}

// ColumnSurvey is the state of surveying one column or input.
type ColumnSurvey struct {
	ColumnSummary
	NumberStats   runningStats
	ClassCounts   []int      // number of values of each class
	TextCounts    textCounts // counts of values that are not numbers
	CheckReading  func(data.Reading) (float64, data.UnusedReason)
	labelLateness time.Duration // permitted lateness of labels; 0 if the input is not a label
	IsFoundInFile bool          // whether a file contains the column
}

// NewColumnSurvey returns an empty survey of a column with the given name.
func NewColumnSurvey(name string) *ColumnSurvey {
	return &ColumnSurvey{ColumnSummary: ColumnSummary{Name: name}}
}

// NewInputColumnSurvey returns the survey of an input of a task. Its values are checked by the rules.
func NewInputColumnSurvey(in spec.InputSeries, by rows.ValueRules) *ColumnSurvey {
	c := NewColumnSurvey(in.Name)
	c.Unit, c.Texts, c.labelLateness, c.CheckReading = in.Unit, in.Classes, in.LabelLateness,
		grid.NewReadingCheck(in, by.MissingValues, by.DeviceInputs[in.Name])
	c.ClassCounts = make([]int, len(in.Classes))
	return c
}

// CountReading counts a reading. If the reading is rejected, it returns the reason. Readings before the time mark are
// late.
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

// Summary returns the summary of the column.
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

// HasMostlyTexts reports whether a column without a check contains more texts than numbers.
func (c *ColumnSurvey) HasMostlyTexts() bool {
	return c.CheckReading == nil && c.TextCounts.Count > c.NumberStats.Count
}

// NeededInputs returns the inputs that the columns of a query require.
func NeededInputs(w *data.RowQuery) []spec.InputSeries {
	used := w.Inputs()
	return slices.DeleteFunc(slices.Clone(w.Recipe.Inputs), func(in spec.InputSeries) bool {
		return !slices.Contains(used, in.Name)
	})
}

// SuggestedConfigChange is a suggested new value for a key of the configuration section.
type SuggestedConfigChange struct {
	Key    string `json:"key"` // key without the name of the section; empty if the file itself must be changed
	Value  string `json:"value"`
	Reason string `json:"why"`
}

// RowsDescription describes the rows that a source provides for a task.
type RowsDescription struct {
	Snapshot      data.RowSnapshot
	Columns       []ColumnSummary // columns of the raw rows: the features and, if any, the target
	QualityReport data.QualityReport
}

// DescribeRows makes the rows of a source for a query and returns a description of the rows.
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

// measuringPreparer computes the statistics of the rows before it prepares them.
type measuringPreparer struct {
	data.RowPreparer // preparer of the task; may be nil
	columns          []runningStats
}

// PrepareSamples implements data.RowPreparer.
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

// PrepareRowsAgain implements data.RowPreparer.
func (m *measuringPreparer) PrepareRowsAgain(x, y []float32) {
	if m.RowPreparer != nil {
		m.RowPreparer.PrepareRowsAgain(x, y)
	}
}

// ApplyConfigChanges returns a copy of the section with the changes applied.
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
