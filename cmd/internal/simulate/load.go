package simulate

import (
	"errors"

	"github.com/fedmesh/fedmesh/cmd/internal/config"
	"github.com/fedmesh/fedmesh/sim"
)

// checked is an experiment that is validated in the terms of package config, which knows where each key stands in the file.
type checked sim.Experiment

// Validate is called by config.Load.
func (c *checked) Validate() error { return located((*sim.Experiment)(c).Check()) }

// located turns the field errors in a tree of joined errors into config's.
func located(err error) error {
	var field *sim.FieldError
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // each of them, not the first that fits
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, located(e))
		}
		return errors.Join(all...)
	}
	if errors.As(err, &field) {
		return config.FieldError{Key: field.Key, Problem: field.Problem}
	}
	return err
}

// Load reads and checks an experiment: the defaults, the file, and keys that the command line sets.
func Load(path string, set map[string]string) (sim.Experiment, error) {
	c := checked(sim.Default())
	err := config.Load(&c, config.Source{Path: path, Overrides: set})
	return sim.Experiment(c), err
}
