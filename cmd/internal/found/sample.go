package found

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
)

// Sample is what a CSV file of a device tells about its columns.
type Sample struct {
	data.Config
	Numbers []string // columns whose values are numbers, in the file's order
	Others  []string // the rest
}

// ReadSample surveys a CSV file, as `agentd data check` does. Delimiter and decimal are found by themselves.
func ReadSample(path string) (*Sample, error) {
	section := data.Config{CSV: path}
	stored, err := section.Stored(store.Machine, "")
	if err != nil {
		return nil, err
	}
	survey := stored.Survey(nil)
	s := &Sample{Config: *section.Changed(survey.Changes)}
	for _, c := range survey.Changes {
		if c.Key == "" {
			return nil, fmt.Errorf("%s: %s", path, c.Why)
		}
	}
	for _, f := range survey.Faults {
		if f.Reason == data.Unreadable {
			return nil, fmt.Errorf("%s: %s", path, f.First[0].Problem)
		}
	}
	for _, c := range survey.Columns {
		if c.Used > 0 && len(c.Texts) == 0 {
			s.Numbers = append(s.Numbers, c.Name)
		} else {
			s.Others = append(s.Others, c.Name)
		}
	}
	if len(s.Numbers) < 2 {
		return nil, fmt.Errorf("%s: %d columns have numbers (%s); want at least a feature and a target", path,
			len(s.Numbers), strings.Join(s.Numbers, ", "))
	}
	return s, nil
}

// Columns returns the features, by default all columns of numbers but the target, if there is one; or why a column
// cannot be used.
func (s *Sample) Columns(target string, features []string) ([]string, error) {
	if len(features) == 0 {
		features = slices.DeleteFunc(slices.Clone(s.Numbers), func(c string) bool { return c == target })
	}
	var errs []error
	names := slices.Clone(features)
	if target != "" {
		names = append(names, target)
	}
	for _, name := range names {
		switch near := spec.Closest(name, s.Numbers, strings.ToLower); {
		case slices.Contains(s.Numbers, name):
		case slices.Contains(s.Others, name):
			errs = append(errs, fmt.Errorf("%s: the column %s has no numbers; name classes by numbers from 0",
				s.CSV, name))
		case near != "":
			errs = append(errs, fmt.Errorf("%s has no column %s; did you mean %q?", s.CSV, name, near))
		default:
			errs = append(errs, fmt.Errorf("%s has no column %s; it has %s", s.CSV, name,
				strings.Join(s.Numbers, ", ")))
		}
	}
	return features, errors.Join(errs...)
}

// mostClasses is how many whole numbers from 0 a column may have to be taken for classes.
const mostClasses = 20

// Kind guesses what a target is: one of two classes (logistic), one of several (softmax), or a number (linear, of no
// classes).
func (s *Sample) Kind(target string, features []string) (kind spec.ModelKind, classes int, err error) {
	source, err := s.Open()
	if err != nil {
		return "", 0, err
	}
	rows, err := data.Load(source, data.Want{Features: features, Target: target})
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
