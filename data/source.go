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

// Source provides rows. Its methods, and the methods of the QueriedRows that it opens, must be called from one
// goroutine at a time.
type Source interface {
	// OpenRows returns the rows for a query. It does not read any data.
	OpenRows(w RowQuery) QueriedRows
	// Probe returns an error if the source cannot be read at the moment. It does not check columns, because it does not
	// know the task.
	Probe() error
	// Close stops background work of the source. Existing snapshots remain valid.
	Close() error
}

// QueriedRows provides the rows of a source for one query.
type QueriedRows interface {
	// Changed reports whether a new snapshot may differ from the last snapshot. It also returns true if the last
	// snapshot failed. It reads no data, and may return true although nothing has changed.
	Changed() bool
	// Snapshot returns the current rows, at least one row. The error is a *FileError if the user can correct the
	// problem in a line of the file. A later snapshot may succeed.
	Snapshot() (RowSnapshot, error)
}

// QualityUpdater is implemented by QueriedRows that must read the source to produce their quality report.
type QualityUpdater interface {
	// UpdateQualityReport reads new data, so that the report covers them. It does not change the result of Changed.
	UpdateQualityReport()
}

// RowQuery selects the rows that a caller requires.
type RowQuery struct {
	Features []string
	Target   string // target column or expression; empty means that all targets are 0
	// Recipe, if set, defines how rows are made from readings; Features and Target are then its column expressions. If
	// Recipe is nil, they are columns of the source and each line is a row.
	Recipe *spec.RowRecipe
	// Labels is the set of valid targets. Rows with any other target are skipped and counted as unknown_class.
	Labels learner.LabelSet
	// IsForPrediction requests rows for predictions. They are made before their targets are known, and their targets
	// are 0. Old rows may be missing. The rows are not prepared.
	IsForPrediction bool
	// ExternalTask, if set, is a task that an external program trains with rows of its own. Such a task has no columns.
	ExternalTask *wire.Task
	// Preparer, if set, prepares the rows for the task.
	Preparer RowPreparer
}

// RowPreparer prepares rows for a task, in place.
type RowPreparer interface {
	// PrepareSamples prepares new rows before they become part of a snapshot. It returns an error if it rejects them.
	// Each row is passed once, in order. If a call fails, its rows are passed again. first is true if all previous rows
	// are void.
	PrepareSamples(fresh *learner.Samples[float32], first bool) error
	// PrepareRowsAgain prepares rows that were passed to PrepareSamples before. x is row-major, and y contains the
	// targets. It may be called concurrently.
	PrepareRowsAgain(x, y []float32)
}

// Columns returns the features, followed by the target if it is not empty.
func (w *RowQuery) Columns() []string { return AppendTarget(w.Features, w.Target) }

// AppendTarget returns a copy of features, followed by target if it is not empty.
func AppendTarget(features []string, target string) []string {
	all := slices.Clone(features)
	if target != "" {
		all = append(all, target)
	}
	return all
}

// Inputs returns the names of the inputs that the features and the target require.
func (w *RowQuery) Inputs() (all []string) {
	for _, name := range w.Columns() {
		c, err := spec.ParseColumnExpression(name)
		if err == nil && !c.IsCalendar() && !slices.Contains(all, c.InputName) {
			all = append(all, c.InputName)
		}
	}
	return all
}

// RowSnapshot contains the rows of a source at one moment. It never changes.
type RowSnapshot struct {
	Version uint64 // version from 1; snapshots of the same QueriedRows with equal versions have the same rows
	Rows    *learner.Samples[float32]
	// Times contains the time of each row; nil if rows have no time.
	Times *RowTimes
	// TargetDelay is the maximum time between a row and the measurement of its target, in nanoseconds.
	TargetDelay int64
	// ReplacementReason is the reason why rows of the previous snapshot may be missing, with file and line. It is empty
	// if rows were only added.
	ReplacementReason string

	ReadErr func() error
}

// Err returns the first error of reading rows from a file, or nil. A later snapshot contains the rows again.
func (v RowSnapshot) Err() error {
	if v.ReadErr == nil {
		return nil
	}
	return v.ReadErr()
}

// Kinds of sources.
const (
	SourceCSV   SourceKind = "csv"   // a CSV file with named columns, plain or compressed (.gz)
	SourceMQTT  SourceKind = "mqtt"  // topics of a broker of the site
	SourceLines SourceKind = "lines" // lines of the standard input, a named pipe or a command
)

// Config is the section of a configuration file that describes a source of rows.
type Config struct {
	Source     SourceKind `yaml:"source"`  // kind of the source; empty means csv
	CSVPath    string     `yaml:"csv"`     // path of a file or folder, or a pattern such as log-*.csv
	LinesPath  string     `yaml:"lines"`   // path of a named pipe, or "-" for the standard input
	Command    []string   `yaml:"command"` // program and arguments; its output consists of lines
	LineFormat string     `yaml:"format"`  // format of the lines: json (default) or csv
	// Delimiter separates the fields of CSV; the default is a comma. DecimalSeparator is used in numbers; the default
	// is a point.
	Delimiter        string `yaml:"delimiter"`
	DecimalSeparator string `yaml:"decimal"`
	SkipRows         int    `yaml:"skip_rows"` // number of lines above the header
	CommentPrefix    string `yaml:"comment"`   // prefix of CSV lines to skip; empty means none
	// ColumnByInput contains the column or path of each input and, for CSV, the column name in the file for each column
	// of the task; a CSV column that is not listed has the same name in the file as in the task. For MQTT an entry
	// contains the topic, followed by the path.
	ColumnByInput map[string]string `yaml:"columns"`
	TopicSettings []TopicSettings   `yaml:"topics"` // settings of MQTT topics
	// TimeColumn is the column or path of the time. If it is empty, rows have no time, and readings have the time of
	// their arrival.
	TimeColumn string `yaml:"time"`
	TimeFormat string `yaml:"time_format"` // format of times; empty means RFC 3339 or seconds since 1970
	TimeZone   string `yaml:"time_zone"`   // time zone of times without one; empty means UTC
	// MissingValuePolicy selects the replacement of missing values; the default is skip.
	MissingValuePolicy grid.FillPolicy `yaml:"missing"`
	// MaxLastValueAge is the maximum age of the previous value that replaces a missing value, for the policy "last".
	MaxLastValueAge time.Duration `yaml:"last_at_most"`
	// MissingValues contains texts and numbers that mean a missing value, in addition to the standard texts such as NA.
	MissingValues []UnquotedYAMLText `yaml:"missing_values"`
	// RangeByColumn contains the valid range [minimum, maximum] of a column or an input, by its name in the task.
	RangeByColumn map[string][]float64 `yaml:"range"`
	// UnitByInput maps each input to the unit of its readings. It replaces the units that payloads contain.
	UnitByInput          map[string]string `yaml:"units"`
	MaxUnusableShare     float64           `yaml:"max_bad"` // maximum share of unusable rows or values; 0 means 0.2
	RequiredTextByColumn map[string]string `yaml:"where"`   // required text by column; other rows are skipped
	// ShareIndex and ShareCount select a share of the rows, which are divided one by one among ShareCount shares.
	// ShareIndex is the index of this share, from 0.
	ShareIndex int `yaml:"share"`
	ShareCount int `yaml:"shares"`
	// RowFileFolder is the folder for files of rows that do not fit into memory; empty means the system's folder for
	// temporary files.
	RowFileFolder string `yaml:"-"`
}

// TopicSettings contains the settings of the topics that match a filter.
type TopicSettings struct {
	Topic  string `yaml:"topic"`  // topic or topic filter
	Format string `yaml:"format"` // format of the payloads; empty means that the topic and the column show it
	// TimePath, TimeFormat and TimeZone replace the settings of the source if one of them is set.
	TimePath       string `yaml:"time"`
	TimeFormat     string `yaml:"time_format"`
	TimeZone       string `yaml:"time_zone"`
	TimeIsOptional bool   `yaml:"time_optional"` // whether a payload without a time has the time of its arrival
	// Availability is the topic with messages such as online and offline. {1} is the level that matches the first
	// wildcard of Topic.
	Availability string `yaml:"availability"`
	// RequestsBirths allows the source to publish requests for missing births of Sparkplug nodes.
	RequestsBirths bool `yaml:"rebirth"`
}

// UnquotedYAMLText is a text in the configuration. Unlike a string, it requires no quotes in YAML if it looks like a
// number.
type UnquotedYAMLText string

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *UnquotedYAMLText) UnmarshalText(text []byte) error {
	*w = UnquotedYAMLText(text)
	return nil
}

// MissingValueRules returns the set of missing values of this section.
func (c *Config) MissingValueRules() grid.MissingValues {
	words := make([]string, len(c.MissingValues))
	for i, w := range c.MissingValues {
		words[i] = string(w)
	}
	return grid.NewMissingValues(words)
}

// DeviceInputs returns the properties of the inputs on this device.
func (c *Config) DeviceInputs() map[string]grid.DeviceInput {
	all := map[string]grid.DeviceInput{}
	for name, bounds := range c.RangeByColumn {
		all[name] = grid.DeviceInput{ValidRange: bounds}
	}
	for name, unit := range c.UnitByInput {
		all[name] = grid.DeviceInput{Unit: unit, ValidRange: c.RangeByColumn[name]}
	}
	return all
}

// Kind returns the kind of the source. The default is csv.
func (c *Config) Kind() SourceKind { return cmp.Or(c.Source, SourceCSV) }

// UnusableShareLimit returns the maximum share of unusable rows.
func (c *Config) UnusableShareLimit() float64 {
	if c.MissingValuePolicy == grid.FillRefuse {
		return 0
	}
	return cmp.Or(c.MaxUnusableShare, 0.2)
}

// FillRule returns the rule for replacing missing values.
func (c *Config) FillRule() grid.FillRule {
	return grid.FillRule{Policy: cmp.Or(c.MissingValuePolicy, grid.FillSkip), MaxLastValueAge: c.MaxLastValueAge}
}

// LoadRows returns the current rows of a source.
func LoadRows(s Source, w RowQuery) (*learner.Samples[float32], error) {
	v, err := s.OpenRows(w).Snapshot()
	return v.Rows, err
}

// MemorySource is a source in memory, for tests and simulations. It is a function that always returns the same rows.
// The caller owns the returned rows.
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

// Changed implements QueriedRows. It returns true until a snapshot has succeeded.
func (r *memoryQueriedRows) Changed() bool { return r.snapshot.Rows == nil }

// Snapshot implements QueriedRows.
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

// SourceKind is the kind of a source, as in the configuration file.
type SourceKind string
