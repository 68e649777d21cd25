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

// sourceDriver contains the functions of one kind of source.
type sourceDriver struct {
	open func(c *data.Config) (data.Source, error)
	// openStored opens the stored data of a source, without collecting.
	openStored      func(c *data.Config, disk store.Disk, dir string) (survey.StoredSource, error)
	checkConfig     func(c *data.Config, problems *spec.ProblemList, section string)
	pathByConfigKey func(c *data.Config) map[string]string // returns the source's file paths by configuration key
}

var sourceDrivers = map[data.SourceKind]sourceDriver{
	data.SourceCSV: {open: openCSV, openStored: openStoredCSV, checkConfig: checkCSVConfig,
		pathByConfigKey: csvPathByConfigKey},
	data.SourceMQTT: {open: openMQTT, openStored: openStoredRing, checkConfig: checkMQTTConfig,
		pathByConfigKey: noPathByConfigKey},
	data.SourceLines: {open: openLines, openStored: openStoredRing, checkConfig: checkLinesConfig,
		pathByConfigKey: noPathByConfigKey},
}

// noPathByConfigKey is the pathByConfigKey of a source that reads no files.
func noPathByConfigKey(*data.Config) map[string]string { return nil }

// CheckConfig validates a section of the configuration and reports its problems.
func CheckConfig(c *data.Config, problems *spec.ProblemList, section string) {
	before := problems.ProblemCount()
	spec.RequireOneOf(problems, section+".source", c.Kind(), slices.Sorted(maps.Keys(sourceDrivers))...)
	fill := c.FillRule()
	spec.RequireOneOf(problems, section+".missing", fill.Policy, grid.FillPolicies()...)
	problems.Require((fill.Policy == grid.FillLast) == (fill.MaxLastValueAge > 0), section+".last_at_most",
		"invalid value %s: must be above 0 if missing is last, and 0 otherwise", fill.MaxLastValueAge)
	for _, name := range slices.Sorted(maps.Keys(c.RangeByColumn)) {
		bounds := c.RangeByColumn[name]
		problems.Require(len(bounds) == 2 && bounds[0] < bounds[1], section+".range."+name,
			"invalid value %v: must be a minimum and a larger maximum, such as [-50, 60]", bounds)
	}
	for _, name := range slices.Sorted(maps.Keys(c.UnitByInput)) {
		unit := c.UnitByInput[name]
		problems.Require(unit != "" && len(unit) <= maxUnitBytes, section+".units."+name,
			"invalid unit %s: must have 1 to %d bytes", data.QuoteForMessage(unit), maxUnitBytes)
	}
	problems.Require(c.MaxUnusableShare >= 0 && c.MaxUnusableShare < 1, section+".max_bad",
		"invalid value %v: must be at least 0 and below 1 (0 means the default, 0.2)",
		c.MaxUnusableShare)
	if problems.ProblemCount() == before {
		sourceDrivers[c.Kind()].checkConfig(c, problems, section)
	}
}

// Open returns the source for a validated section.
func Open(c *data.Config) (data.Source, error) { return sourceDrivers[c.Kind()].open(c) }

// OpenStoredSource opens the stored data of a source for a validated section. dir is the folder with the ring of a
// collector.
func OpenStoredSource(c *data.Config, disk store.Disk, dir string) (survey.StoredSource, error) {
	return sourceDrivers[c.Kind()].openStored(c, disk, dir)
}

// PathByConfigKey returns the paths of the files that the source reads, by configuration key.
func PathByConfigKey(c *data.Config) map[string]string {
	k, known := sourceDrivers[c.Kind()]
	if !known {
		return nil // CheckConfig reports the unknown kind
	}
	return k.pathByConfigKey(c)
}
