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

// experiment is that of the file, or of the folder that is loaded, with the keys that the command line sets.
func (o *Options) experiment() (sim.Experiment, error) {
	e := sim.Default()
	if o.Load != "" {
		var err error
		if e, err = sim.Dumped(o.Load); err != nil {
			return e, err
		}
	}
	c := checked(e)
	err := config.Load(&c, config.Source{Path: o.Config, Overrides: o.Set})
	e = sim.Experiment(c)
	e.Dump = o.Dump
	return e, err
}
