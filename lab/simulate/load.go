package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/lab/sim"
)

// checked is an experiment with a Validate method for package config, which adds the position in the file to errors.
type checked sim.Experiment

// Validate implements the validation that config.Load calls. If a dump is loaded, it checks only the settings in the
// experiment's own file.
func (c *checked) Validate() error {
	if c.Load != "" {
		return (*sim.Experiment)(c).Validate()
	}
	if err := (*sim.Experiment)(c).Read(); err != nil {
		return err
	}
	return (*sim.Experiment)(c).Check()
}

// experiment returns the experiment from the file or from the loaded dump, with the values of the command line applied.
func (o *Options) experiment() (sim.Experiment, error) {
	e := sim.Default()
	if o.Load != "" {
		if err := o.instanceKeys(); err != nil {
			return e, err
		}
		var err error
		if e, err = sim.LoadDump(o.Load); err != nil {
			return e, err
		}
	}
	c := checked(e)
	err := config.Load(&c, config.Source{Path: o.Config, Overrides: o.Set})
	e = sim.Experiment(c)
	e.Dump = o.Dump
	if err == nil && o.Load != "" {
		err = e.Check()
	}
	return e, err
}

// instanceKeys returns an error if the command line sets a key whose value is determined by the loaded dump.
func (o *Options) instanceKeys() error {
	for _, key := range slices.Sorted(maps.Keys(o.Set)) {
		section, _, _ := strings.Cut(key, ".")
		graph := section == "mixing" &&
			!slices.Contains([]string{"mixing.server_every", "mixing.first_block", "mixing.weights", "mixing.link_up"},
				key)
		if slices.Contains([]string{"data", "agents", "weights", "weigh_rows"}, section) || graph {
			return fmt.Errorf("--set %s: cannot change this key because the instance is loaded from %s", key, o.Load)
		}
	}
	return nil
}
