package spec

import (
	"errors"
	"fmt"
)

// FieldError is a value of a configuration or of an experiment that cannot be.
type FieldError struct {
	// Key is the path of the key in its file, "task.model.risk"; an element of a list is "agents[1]", an entry of a map
	// "labels.site".
	Key string
	// Problem completes the sentence that Key begins, with the bound: "must be above 0, is -1".
	Problem string
}

// Error returns "key: problem".
func (e *FieldError) Error() string { return e.Key + ": " + e.Problem }

// ProblemList collects what is wrong with a configuration. Its zero value has found nothing.
type ProblemList struct{ errs []error }

// Require finds a problem with a key unless ok.
func (c *ProblemList) Require(ok bool, key, format string, args ...any) {
	if !ok {
		c.errs = append(c.errs, &FieldError{Key: key, Problem: fmt.Sprintf(format, args...)})
	}
}

// AddError takes an error, if it is not nil, for the problem of a key.
func (c *ProblemList) AddError(key string, err error) {
	if err != nil {
		c.Require(false, key, "%v", err)
	}
}

// AddSectionErrors takes over all problems of joined errors. The keys of field errors get the section before them, if
// there is one.
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

// ProblemCount returns how many have been found.
func (c *ProblemList) ProblemCount() int { return len(c.errs) }

// Err joins what has been found; nil if nothing has.
func (c *ProblemList) Err() error { return errors.Join(c.errs...) }
