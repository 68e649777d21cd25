package sources

import (
	"maps"
	"slices"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/data/survey"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
)

// sourceDriver is how sources of a kind are made.
type sourceDriver struct {
	open func(c *data.Config) (data.Source, error)
	// as it is on the disk
	openStored      func(c *data.Config, disk store.Disk, dir string) (survey.StoredSource, error)
	checkConfig     func(c *data.Config, problems *spec.ProblemList, section string)
	pathByConfigKey func(c *data.Config) map[string]string // that it reads, by key
}

// sourceDrivers is the table of the sources.
var sourceDrivers = map[data.SourceKind]sourceDriver{
	data.SourceCSV: {open: openCSV, openStored: openStoredCSV, checkConfig: checkCSVConfig,
		pathByConfigKey: csvPathByConfigKey},
	data.SourceMQTT: {open: openMQTT, openStored: openStoredRing, checkConfig: checkMQTTConfig,
		pathByConfigKey: noPathByConfigKey},
	data.SourceLines: {open: openLines, openStored: openStoredRing, checkConfig: checkLinesConfig,
		pathByConfigKey: noPathByConfigKey},
}

// noPathByConfigKey is of a source that reads none by itself.
func noPathByConfigKey(*data.Config) map[string]string { return nil }

// CheckConfig reports the problems of a section of the configuration.
func CheckConfig(c *data.Config, problems *spec.ProblemList, section string) {
	before := problems.ProblemCount()
	spec.RequireOneOf(problems, section+".source", c.Kind(), slices.Sorted(maps.Keys(sourceDrivers))...)
	fill := c.FillRule()
	spec.RequireOneOf(problems, section+".missing", fill.Policy, grid.FillPolicies()...)
	problems.Require((fill.Policy == grid.FillLast) == (fill.MaxLastValueAge > 0), section+".last_at_most",
		"is %s; want a duration above 0 with missing: last, and 0 without", fill.MaxLastValueAge)
	for _, name := range slices.Sorted(maps.Keys(c.RangeByColumn)) {
		bounds := c.RangeByColumn[name]
		problems.Require(len(bounds) == 2 && bounds[0] < bounds[1], section+".range."+name,
			"is %v; want a minimum and a larger maximum, such as [-50, 60]", bounds)
	}
	problems.Require(c.MaxUnusableShare >= 0 && c.MaxUnusableShare < 1, section+".max_bad",
		"is %v; want 0 (for 0.2) or a share below 1",
		c.MaxUnusableShare)
	if problems.ProblemCount() == before {
		sourceDrivers[c.Kind()].checkConfig(c, problems, section)
	}
}

// Open makes the source of a section that was checked.
func Open(c *data.Config) (data.Source, error) { return sourceDrivers[c.Kind()].open(c) }

// OpenStoredSource opens the source of a section that was checked, as it is on the disk. A collector's readings are in
// the folder dir.
func OpenStoredSource(c *data.Config, disk store.Disk, dir string) (survey.StoredSource, error) {
	return sourceDrivers[c.Kind()].openStored(c, disk, dir)
}

// PathByConfigKey returns the files that the source reads, by their keys in the section.
func PathByConfigKey(c *data.Config) map[string]string {
	k, known := sourceDrivers[c.Kind()]
	if !known {
		return nil // CheckConfig reports it
	}
	return k.pathByConfigKey(c)
}
