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

// StoredSource is a source as it is on the disk: a file, or the readings that a [Collector] has kept. It collects
// nothing, so a collector may run meanwhile.
type StoredSource interface {
	data.Source
	// Survey reads all of it and describes it. w says what is wanted of it; nil if nobody knows.
	Survey(w *data.RowQuery) *Survey
}

// Survey describes a source for a person: each fault, and each column. It is bounded, whatever the source has.
type Survey struct {
	Source          string          `json:"source"` // the file, or the folder of the ring
	Lines           int             `json:"lines"`  // of a file, below the header; or readings
	First           time.Time       `json:"first,omitzero"`
	Last            time.Time       `json:"last,omitzero"` // of the times
	Columns         []ColumnSummary `json:"columns"`
	UnwantedColumns []string        `json:"others,omitempty"` // names that are not wanted
	// Changes are what the section needs for the file. If there are any, all else is as if they were made.
	Changes []ConfigChange `json:"changes,omitempty"`
	Faults  []*FaultGroup  `json:"faults,omitempty"`
}

// FaultGroup are those of a column that have the same reason.
type FaultGroup struct {
	Column   string      `json:"column,omitempty"` // its name in the task; "" = of the whole source
	Reason   data.Reason `json:"reason"`
	Count    int         `json:"count"`
	First    []Fault     `json:"first"`               // the first ones
	LastLine int         `json:"last_line,omitempty"` // line of the last one
	// LastFile is the file of the last one, if the source has several; empty = the source.
	LastFile string `json:"last_file,omitempty"`
	Remedy   string `json:"mend,omitempty"` // what to do, if that is known
}

// Fault is a place, and what is wrong there.
type Fault struct {
	File    string `json:"file,omitempty"`   // the file, if the source has several; empty = the source
	Line    int    `json:"line,omitempty"`   // from 1; 0 = of the whole source
	Column  int    `json:"column,omitempty"` // byte in the line, from 1; 0 = the whole line
	Problem string `json:"problem"`
}

// The reasons that only a survey has.
const (
	Unreadable data.Reason = "unreadable" // nothing of the source can be read, or not all
	Damaged    data.Reason = "damaged"    // a part of what was recorded is not what was written: it is left out
	Unrecorded data.Reason = "unrecorded" // there is no ring yet
	NoColumn   data.Reason = "no_column"  // the header lacks it, or has it twice
	// AddedFields means that lines have more fields than the header names, and the last ones are not used.
	AddedFields data.Reason = "added_fields"
)

// MostFaults is how many faults of a column and a reason are told.
const MostFaults = 20

// AddFault adds a fault.
func (s *Survey) AddFault(column string, why data.Reason, f Fault) *FaultGroup {
	i := slices.IndexFunc(s.Faults, func(of *FaultGroup) bool { return of.Column == column && of.Reason == why })
	if i < 0 {
		i = len(s.Faults)
		s.Faults = append(s.Faults, &FaultGroup{Column: column, Reason: why})
	}
	of := s.Faults[i]
	of.Count++
	of.LastLine, of.LastFile = f.Line, f.File
	if len(of.First) < MostFaults {
		of.First = append(of.First, f)
	}
	return of
}

// AddReadFailure adds what keeps the source from being read.
func (s *Survey) AddReadFailure(err error) {
	f := Fault{Problem: err.Error()}
	if bad, ok := err.(*data.FileError); ok { //nolint:errorlint // a wrapped one says more
		if f = (Fault{Line: bad.Line, Problem: bad.Problem}); bad.File != s.Source { // a file of a folder or a pattern
			f.File = bad.File
		}
	}
	s.AddFault("", Unreadable, f)
}

// NoteTime notes the time of a line or a reading.
func (s *Survey) NoteTime(at int64) {
	t := time.Unix(0, at).UTC()
	if s.First.IsZero() || t.Before(s.First) {
		s.First = t
	}
	if t.After(s.Last) {
		s.Last = t
	}
}

// Column is a column, or an input, of a survey.
type Column struct {
	ColumnSummary
	Measure      runningStats
	Classes      []int      // how many values had each
	TextCounts   textCounts // in place of numbers
	CheckReading func(data.Reading) (float64, data.Reason)
	labelWait    time.Duration // of a label
	FoundInFile  bool          // a file has the column
}

// NewColumn returns a column of which only the name is known.
func NewColumn(name string) *Column {
	return &Column{ColumnSummary: ColumnSummary{Name: name}}
}

// NewInputColumn returns the column of a task's input, whose values are judged by the rules.
func NewInputColumn(in spec.InputSeries, by rows.ValueRules) *Column {
	c := NewColumn(in.Name)
	c.Unit, c.Texts, c.labelWait, c.CheckReading = in.Unit, in.Classes, in.LabelLateness,
		grid.NewReadingCheck(in, by.MissingValues, by.Ranges[in.Name])
	c.Classes = make([]int, len(in.Classes))
	return c
}

// Take counts a reading, or returns why it is not used. Those before mark are late.
func (c *Column) Take(r data.Reading, mark int64) data.Reason {
	v, why := c.CheckReading(r)
	if why == "" && r.Time < mark-int64(c.labelWait) {
		why = grid.Late
	}
	switch {
	case why == grid.Missing:
		c.Missing++
	case why != "":
		c.Unused++
	case len(c.Classes) > 0:
		c.Classes[int(v)]++
		c.Measure.Count++
	default:
		c.Measure.Take(v)
	}
	return why
}

// Summary is what is told of a column.
func (c *Column) Summary() ColumnSummary {
	s := c.ColumnSummary
	switch {
	case len(c.Classes) > 0:
		s.Used, s.Histogram = c.Measure.Count, c.Classes
	case c.OfTexts():
		s.Used, s.Unused, s.Texts, s.Histogram = c.TextCounts.Count, c.Measure.Count, c.TextCounts.known,
			c.TextCounts.counts
	default:
		c.Measure.addToSummary(&s)
	}
	return s
}

// OfTexts reports whether a column of which nobody knows better is of texts.
func (c *Column) OfTexts() bool { return c.CheckReading == nil && c.TextCounts.Count > c.Measure.Count }

// InputsOf returns the inputs that the columns of a task are made of.
func InputsOf(w *data.RowQuery) []spec.InputSeries {
	used := w.Inputs()
	return slices.DeleteFunc(slices.Clone(w.Recipe.Inputs), func(in spec.InputSeries) bool {
		return !slices.Contains(used, in.Name)
	})
}

// ConfigChange is a key of the section, and the value that it needs.
type ConfigChange struct {
	Key   string `json:"key"` // without that of the section: delimiter; "" = the file itself is to be changed
	Value string `json:"value"`
	Why   string `json:"why"`
}

// RowsDescription is what a source gives for a task.
type RowsDescription struct {
	View    data.View
	Columns []ColumnSummary // of the rows as they are made: the features, then the target if there is one
	Report  data.Report
}

// DescribeRows has a source make its rows, and describes them.
func DescribeRows(s data.Source, w data.RowQuery) (m RowsDescription, err error) {
	by := &measuringPreparer{w.Prepare, make([]runningStats, len(w.Features)+1)}
	w.Prepare = by
	rows := s.Open(w)
	m.View, err = rows.Snapshot()
	for i, name := range w.Columns() {
		c := ColumnSummary{Name: name}
		by.columns[i].addToSummary(&c)
		m.Columns = append(m.Columns, c)
	}
	if r, ok := rows.(data.Reporter); ok {
		m.Report = r.Report()
	}
	return m, err
}

// measuringPreparer measures rows as they are made.
type measuringPreparer struct {
	data.Preparer // may be nil
	columns       []runningStats
}

// Prepare implements Preparer.
func (m *measuringPreparer) Prepare(fresh *learner.Samples[float32], first bool) error {
	if first {
		clear(m.columns)
	}
	for i := range fresh.Len() {
		x, y := fresh.Row(i)
		for j, v := range x {
			m.columns[j].Take(float64(v))
		}
		m.columns[len(x)].Take(float64(y))
	}
	if m.Preparer == nil {
		return nil
	}
	return m.Preparer.Prepare(fresh, first)
}

// PrepareAgain implements Preparer.
func (m *measuringPreparer) PrepareAgain(x, y []float32) {
	if m.Preparer != nil {
		m.Preparer.PrepareAgain(x, y)
	}
}

// WithChanges returns the section with changes.
func WithChanges(c *data.Config, changes []ConfigChange) *data.Config {
	n := *c
	for _, change := range changes {
		switch change.Key {
		case "delimiter":
			n.Delimiter = change.Value
		case "decimal":
			n.Decimal = change.Value
		case "time_format":
			n.TimeFormat = change.Value
		}
	}
	return &n
}
