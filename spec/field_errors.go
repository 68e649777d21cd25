package spec

import (
	"errors"
	"fmt"
)

// FieldError describes an invalid value in a configuration or an experiment.
type FieldError struct {
	// Key is the path of the invalid key in its file, such as "task.model.risk", "agents[1]" for a list element, or
	// "labels.site" for a map entry.
	Key string
	// Problem completes a sentence that starts with Key, for example "must be above 0, is -1".
	Problem string
}

// Error returns the message in the form "key: problem".
func (e *FieldError) Error() string { return e.Key + ": " + e.Problem }

// ProblemList collects the errors that are found in a configuration. The zero value is an empty list.
type ProblemList struct{ errs []error }

// Require adds an error under key if the condition ok is false.
func (c *ProblemList) Require(ok bool, key, format string, args ...any) {
	if !ok {
		c.errs = append(c.errs, &FieldError{Key: key, Problem: fmt.Sprintf(format, args...)})
	}
}

// AddError adds err to the list as an error under key. It does nothing if err is nil.
func (c *ProblemList) AddError(key string, err error) {
	if err != nil {
		c.Require(false, key, "%v", err)
	}
}

// AddSectionErrors adds all errors that were joined into err. If section is not empty, it prepends section to the keys
// of these errors.
func (c *ProblemList) AddSectionErrors(section string, err error) {
	var joined interface{ Unwrap() []error }
	field := (*FieldError)(nil)
	switch {
	case err == nil:
	case errors.As(err, &joined):
		for _, e := range joined.Unwrap() {
			c.AddSectionErrors(section, e)
		}
	case section != "" && errors.As(err, &field):
		c.errs = append(c.errs, &FieldError{Key: section + "." + field.Key, Problem: field.Problem})
	default:
		c.errs = append(c.errs, err)
	}
}

// ProblemCount returns the number of errors collected so far.
func (c *ProblemList) ProblemCount() int { return len(c.errs) }

// Err returns all errors as one joined error, or nil if there are none.
func (c *ProblemList) Err() error { return errors.Join(c.errs...) }
