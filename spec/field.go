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

// Check collects what is wrong with a configuration. Its zero value has found nothing.
type Check struct{ errs []error }

// Need finds a problem with a key unless ok.
func (c *Check) Need(ok bool, key, format string, args ...any) {
	if !ok {
		c.errs = append(c.errs, &FieldError{Key: key, Problem: fmt.Sprintf(format, args...)})
	}
}

// Valid takes an error, if it is not nil, for the problem of a key.
func (c *Check) Valid(key string, err error) {
	if err != nil {
		c.Need(false, key, "%v", err)
	}
}

// Take takes over all problems of joined errors. The keys of field errors get the section before them, if there is one.
func (c *Check) Take(section string, err error) {
	var joined interface{ Unwrap() []error }
	field := (*FieldError)(nil)
	switch {
	case err == nil:
	case errors.As(err, &joined):
		for _, e := range joined.Unwrap() {
			c.Take(section, e)
		}
	case section != "" && errors.As(err, &field):
		c.errs = append(c.errs, &FieldError{Key: section + "." + field.Key, Problem: field.Problem})
	default:
		c.errs = append(c.errs, err)
	}
}

// Problems returns how many have been found.
func (c *Check) Problems() int { return len(c.errs) }

// Err joins what has been found; nil if nothing has.
func (c *Check) Err() error { return errors.Join(c.errs...) }
