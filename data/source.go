package data

import (
	"cmp"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Source is where rows come from. Its methods, and those of the Rows that it opens, are called from one goroutine at a
// time.
type Source interface {
	// OpenRows begins to follow the rows that are wanted. It reads nothing yet.
	OpenRows(w RowQuery) QueriedRows
	// Probe returns why there is nothing to read now. It knows no task, so it does not look at columns.
	Probe() error
	// Close ends what the source does by itself. Its views stay.
	Close() error
}

// QueriedRows is a source for those who want certain columns of it.
type QueriedRows interface {
	// Changed reports whether a snapshot would find anything else than the last one, which may have failed. It is
	// cheap, and may say so where nothing has changed.
	Changed() bool
	// Snapshot returns the rows as they are now, at least one. The error is a *FileError if the
	// user can correct a line; a later snapshot may succeed.
	Snapshot() (RowSnapshot, error)
}

// RowQuery says which rows are wanted.
type RowQuery struct {
	Features []string
	Target   string // empty = there is none, and rows have 0 in its place
	// Recipe, if set, says how rows are made of readings; Features and Target are its columns. Without it they are
	// columns of the source, and a line is a row.
	Recipe *spec.RowRecipe
	// Labels is the set of valid targets. Rows with any other target are skipped and counted as unknown_class.
	Labels learner.LabelSet
	// IsForPrediction asks for rows made of readings before their targets are known, for predictions: their targets are
	// 0. Old ones may be left out. They are not prepared.
	IsForPrediction bool
	// ExternalTask, if set, is a task whose rows are those of the program that trains it; there are no columns then.
	ExternalTask *wire.Task
	// Prepare, if set, brings rows into the task's terms.
	Preparer RowPreparer
}

// RowPreparer brings rows into a task's terms, in place.
type RowPreparer interface {
	// Preparer does so with new rows, before they are part of a view, or refuses them. It gets each row once, in order,
	// but those of a call that failed, and those before them that came with these, come again; first says that the
	// rows before are void.
	PrepareSamples(fresh *learner.Samples[float32], first bool) error
	// PrepareRowsAgain does the same with some of the rows that Prepare had, as they were: x is row-major, with y's
	// targets. It may be called from several goroutines at once.
	PrepareRowsAgain(x, y []float32)
}

// Columns are the features, and the target if there is one.
func (w *RowQuery) Columns() []string { return AppendTarget(w.Features, w.Target) }

// AppendTarget returns the features, followed by the target if there is one.
func AppendTarget(features []string, target string) []string {
	all := slices.Clone(features)
	if target != "" {
		all = append(all, target)
	}
	return all
}

// Inputs are those that features and target are made of.
func (w *RowQuery) Inputs() (all []string) {
	for _, name := range w.Columns() {
		c, err := spec.ParseColumnExpression(name)
		if err == nil && !c.IsCalendar() && !slices.Contains(all, c.InputName) {
			all = append(all, c.InputName)
		}
	}
	return all
}

// RowSnapshot is the rows of a source at some moment. It never changes.
type RowSnapshot struct {
	Version uint64 // from 1; views of the same Rows with the same version have the same rows
	Rows    *learner.Samples[float32]
	// Times are when each row was taken; nil where rows have no time.
	Times *RowTimes
	// TargetDelay is how much later than its row's time a target may have been measured, in nanoseconds.
	TargetDelay int64
	// ReplacementReason says why rows that were in the view before may be in it no more, with file and line; empty if
	// rows were only added.
	ReplacementReason string

	ReadErr func() error
}

// Err returns why rows of the view could not be read, if they are in a file and one could not. A later snapshot has
// them again, in another view.
func (v RowSnapshot) Err() error {
	if v.ReadErr == nil {
		return nil
	}
	return v.ReadErr()
}

// The kinds.
const (
	SourceCSV   SourceKind = "csv"   // a file with named columns, plain or (.gz) compressed
	SourceMQTT  SourceKind = "mqtt"  // topics of a broker of the site
	SourceLines SourceKind = "lines" // of the standard input, a named pipe or a command
)

// Config is the section of a configuration file that says where rows come from.
type Config struct {
	Source     SourceKind `yaml:"source"`  // empty = csv
	CSVPath    string     `yaml:"csv"`     // path of a file or a folder, or a pattern such as log-*.csv
	LinesPath  string     `yaml:"lines"`   // a named pipe, or "-" for the standard input
	Command    []string   `yaml:"command"` // a program and its arguments, whose output is lines
	LineFormat string     `yaml:"format"`  // of lines: json (if empty) or csv
	// Delimiter is between the fields of CSV; empty = a comma. DecimalSeparator is in numbers; empty = a point.
	Delimiter        string `yaml:"delimiter"`
	DecimalSeparator string `yaml:"decimal"`
	SkipRows         int    `yaml:"skip_rows"` // number of lines above the header
	CommentPrefix    string `yaml:"comment"`   // prefix of lines of CSV to skip; empty = none
	// ColumnByInput says where the inputs, and in CSV the task's columns, are: their columns or paths, for MQTT after
	// the topic. A column of CSV that is not here has the name that the task gives it.
	ColumnByInput map[string]string `yaml:"columns"`
	// TimeColumn is the column, or the path, of the time; empty = rows have none, readings that of their arrival.
	TimeColumn string `yaml:"time"`
	TimeFormat string `yaml:"time_format"` // empty = RFC 3339, or seconds since 1970
	TimeZone   string `yaml:"time_zone"`   // of times without one; empty = UTC
	// MissingValuePolicy is what stands for a value that a row needs and does not have; empty = skip.
	MissingValuePolicy grid.FillPolicy `yaml:"missing"`
	MaxLastValueAge    time.Duration   `yaml:"last_at_most"` // maximum age of a value with missing: last
	// MissingValues are texts and numbers that mean a missing value, in addition to those of grid.MissingValues.
	MissingValues []UnquotedYAMLText `yaml:"missing_values"`
	// RangeByColumn is the valid range [minimum, maximum] of a column or an input, by its name in the task.
	RangeByColumn        map[string][]float64 `yaml:"range"`
	MaxUnusableShare     float64              `yaml:"max_bad"` // maximum share of unusable rows or values; 0 = 0.2
	RequiredTextByColumn map[string]string    `yaml:"where"`   // only rows whose columns have these texts
	// The rows may be dealt, one by one, to ShareCount shares; ShareIndex is this one's, counted from 0.
	ShareIndex int `yaml:"share"`
	ShareCount int `yaml:"shares"`
	// RowFileFolder is where a file may be made of rows that are too many for memory; empty = the system's for
	// temporary files.
	RowFileFolder string `yaml:"-"`
}

// UnquotedYAMLText is a text in the configuration. Unlike a string, it needs no quotes in YAML if it looks like a
// number.
type UnquotedYAMLText string

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *UnquotedYAMLText) UnmarshalText(text []byte) error {
	*w = UnquotedYAMLText(text)
	return nil
}

// MissingValueRules returns the definition of missing values for this section.
func (c *Config) MissingValueRules() grid.MissingValues {
	words := make([]string, len(c.MissingValues))
	for i, w := range c.MissingValues {
		words[i] = string(w)
	}
	return grid.NewMissingValues(words)
}

// Kind returns the kind of the source; the default is csv.
func (c *Config) Kind() SourceKind { return cmp.Or(c.Source, SourceCSV) }

// UnusableShareLimit is the largest share of rows that cannot be used.
func (c *Config) UnusableShareLimit() float64 {
	if c.MissingValuePolicy == grid.FillRefuse {
		return 0
	}
	return cmp.Or(c.MaxUnusableShare, 0.2)
}

// FillRule returns how rows replace missing values.
func (c *Config) FillRule() grid.FillRule {
	return grid.FillRule{Policy: cmp.Or(c.MissingValuePolicy, grid.FillSkip), MaxLastValueAge: c.MaxLastValueAge}
}

// LoadRows returns the rows of a source as they are now.
func LoadRows(s Source, w RowQuery) (*learner.Samples[float32], error) {
	v, err := s.OpenRows(w).Snapshot()
	return v.Rows, err
}

// MemorySource is a source in memory, for tests and the laboratory: a function that returns its rows, always the same.
// The rows are whoever calls it's own.
type MemorySource func(features []string, target string) (*learner.Samples[float32], error)

// OpenRows implements Source.
func (f MemorySource) OpenRows(w RowQuery) QueriedRows {
	return &memoryQueriedRows{source: f, query: w}
}

// Probe implements Source.
func (MemorySource) Probe() error { return nil }

// Close implements Source.
func (MemorySource) Close() error { return nil }

type memoryQueriedRows struct {
	source   MemorySource
	query    RowQuery
	snapshot RowSnapshot
}

// Changed implements Rows: only rows that could not be had may change.
func (r *memoryQueriedRows) Changed() bool { return r.snapshot.Rows == nil }

// Snapshot implements Rows.
func (r *memoryQueriedRows) Snapshot() (RowSnapshot, error) {
	if r.snapshot.Rows != nil {
		return r.snapshot, nil
	}
	s, err := r.source(r.query.Features, r.query.Target)
	if err == nil && r.query.Preparer != nil {
		err = r.query.Preparer.PrepareSamples(s, true)
	}
	if err != nil {
		return RowSnapshot{}, err
	}
	r.snapshot = RowSnapshot{Version: 1, Rows: s}
	return r.snapshot, nil
}

// SourceKind is a kind of source, by its word in a configuration file.
type SourceKind string
