package setup

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/sources"
	"github.com/fedmesh/fedmesh/data/survey"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
)

// CSVSample describes the columns of a device's CSV file.
type CSVSample struct {
	data.Config             // CSV format, and the time column if there is one with times in ascending order
	NumericColumns []string // columns of numbers except times, in the order of the file
	OtherColumns   []string // remaining columns except the time column
}

// ReadSample examines a CSV file in the same way as `agentd data check`. It detects the delimiter, the decimal
// separator, and the time column with its format.
func ReadSample(path string) (*CSVSample, error) {
	section := data.Config{CSVPath: path}
	stored, err := sources.OpenStoredSource(&section, store.LocalDisk, "")
	if err != nil {
		return nil, err
	}
	found := stored.Survey(nil)
	s := &CSVSample{Config: *survey.ApplyConfigChanges(&section, found.ConfigChanges)}
	for _, c := range found.ConfigChanges {
		if c.Key == "" {
			return nil, fmt.Errorf("%s: %s", path, c.Reason)
		}
	}
	for _, f := range found.Faults {
		if f.Reason == survey.ReasonUnreadable {
			return nil, fmt.Errorf("%s: %s", path, f.FirstFaults[0].Problem)
		}
	}
	for _, c := range found.Columns {
		if c.Used > 0 && len(c.Texts) == 0 {
			s.NumericColumns = append(s.NumericColumns, c.Name)
		} else {
			s.OtherColumns = append(s.OtherColumns, c.Name)
		}
	}
	if err := s.findTimeColumn(); err != nil {
		return nil, err
	}
	if len(s.NumericColumns) < 2 {
		return nil, fmt.Errorf("%s: found %d numeric columns (%s), but a task needs at least one input column and "+
			"one target column", path,
			len(s.NumericColumns), strings.Join(s.NumericColumns, ", "))
	}
	return s, nil
}

// timeColumnNames contains common names of time columns in lower case. A numeric column is a time column only if it has
// one of these names and plausible times.
var timeColumnNames = []string{"time", "timestamp", "datetime", "date_time", "date", "unixtime", "epoch", "ts", "utc",
	"zeit",
	"datum", "zeitstempel"}

// findTimeColumn sets the time column to the first column whose values are times in ascending order. Other columns with
// times are not used as features.
func (s *CSVSample) findTimeColumn() error {
	isTime := func(name string) bool { return slices.Contains(timeColumnNames, strings.ToLower(name)) }
	candidates := slices.Clone(s.OtherColumns)
	for _, name := range s.NumericColumns {
		if isTime(name) {
			candidates = append(candidates, name)
		}
	}
	const most = 8 // maximum number of columns to try as the time column
	for _, name := range candidates[:min(len(candidates), most)] {
		section := s.Config
		section.TimeColumn = name
		stored, err := sources.OpenStoredSource(&section, store.LocalDisk, "")
		if err != nil {
			return err
		}
		numbers := slices.DeleteFunc(slices.Clone(s.NumericColumns), func(c string) bool { return c == name })
		if len(numbers) < 2 {
			continue
		}
		last := len(numbers) - 1
		found := stored.Survey(&data.RowQuery{Features: numbers[:last], Target: numbers[last]})
		faults := map[data.UnusedReason]bool{}
		for _, f := range found.Faults {
			if f.Column == name {
				faults[f.Reason] = true
			}
		}
		if found.LatestTime.IsZero() || faults[grid.ReasonBadTime] || faults[sources.ReasonEarlyTimes] {
			continue
		}
		s.NumericColumns = numbers
		if s.TimeColumn == "" && !faults[grid.ReasonLate] {
			s.Config = *survey.ApplyConfigChanges(&section, found.ConfigChanges)
			s.OtherColumns = slices.DeleteFunc(s.OtherColumns, func(c string) bool { return c == name })
		} else if !slices.Contains(s.OtherColumns, name) {
			s.OtherColumns = append(s.OtherColumns, name)
		}
	}
	return nil
}

// ResolveFeatureColumns checks the feature columns and returns them. The default is all numeric columns except the
// target.
func (s *CSVSample) ResolveFeatureColumns(target string, features []string) ([]string, error) {
	if len(features) == 0 {
		features = slices.DeleteFunc(slices.Clone(s.NumericColumns), func(c string) bool { return c == target })
	}
	var errs []error
	names := slices.Clone(features)
	if target != "" {
		names = append(names, target)
	}
	for _, name := range names {
		switch near := spec.ClosestSpelling(name, s.NumericColumns, strings.ToLower); {
		case slices.Contains(s.NumericColumns, name):
		case slices.Contains(s.OtherColumns, name), name == s.TimeColumn:
			errs = append(errs, fmt.Errorf("%s: the column %s contains texts or times, but must contain numbers; "+
				"replace class names with numbers from 0",
				s.CSVPath, name))
		case near != "":
			errs = append(errs, fmt.Errorf("%s has no column %s; did you mean %q?", s.CSVPath, name, near))
		default:
			errs = append(errs, fmt.Errorf("%s has no column %s; the numeric columns are %s", s.CSVPath, name,
				strings.Join(s.NumericColumns, ", ")))
		}
	}
	return features, errors.Join(errs...)
}

// mostClasses is the maximum number of distinct whole numbers, from 0, for which a column is treated as classes.
const mostClasses = 20

// GuessModelKind guesses the kind of model from the target's values: two classes (logistic), several classes (softmax),
// or a number (linear, 0 classes).
func (s *CSVSample) GuessModelKind(target string, features []string) (kind spec.ModelKind, classes int, err error) {
	source, err := sources.Open(&s.Config)
	if err != nil {
		return "", 0, err
	}
	rows, err := data.LoadRows(source, data.RowQuery{Features: features, Target: target})
	if err = errors.Join(err, source.Close()); err != nil {
		return "", 0, err
	}
	seen := map[float32]bool{}
	for i := range rows.Len() {
		_, y := rows.Row(i)
		if seen[y] = true; y < 0 || y >= mostClasses || math.Floor(float64(y)) != float64(y) {
			return spec.ModelLinear, 0, nil
		}
	}
	for range mostClasses {
		if !seen[float32(classes)] {
			break
		}
		classes++
	}
	switch {
	case classes < 2 || classes != len(seen):
		return spec.ModelLinear, 0, nil
	case classes == 2:
		return spec.ModelLogistic, classes, nil
	}
	return spec.ModelSoftmax, classes, nil
}
