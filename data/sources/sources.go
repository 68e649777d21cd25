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
	open   func(c *data.Config) (data.Source, error)
	stored func(c *data.Config, disk store.Disk, dir string) (survey.StoredSource, error) // as it is on the disk
	check  func(c *data.Config, problems *spec.ProblemList, section string)
	files  func(c *data.Config) map[string]string // that it reads, by key
}

// sourceDrivers is the table of the sources.
var sourceDrivers = map[data.SourceKind]sourceDriver{
	data.SourceCSV:   {open: openCSV, stored: storedCSV, check: checkCSV, files: filesOfCSV},
	data.SourceMQTT:  {open: openMQTT, stored: openStoredRing, check: checkMQTT, files: noFiles},
	data.SourceLines: {open: openLines, stored: openStoredRing, check: checkLines, files: noFiles},
}

// noFiles is of a source that reads none by itself.
func noFiles(*data.Config) map[string]string { return nil }

// Check reports the problems of a section of the configuration.
func Check(c *data.Config, problems *spec.ProblemList, section string) {
	before := problems.ProblemCount()
	spec.OneOf(problems, section+".source", c.Kind(), slices.Sorted(maps.Keys(sourceDrivers))...)
	fill := c.Fill()
	spec.OneOf(problems, section+".missing", fill.Policy, grid.FillPolicies()...)
	problems.Require((fill.Policy == grid.FillLast) == (fill.MaxAge > 0), section+".last_at_most",
		"is %s; want a duration above 0 with missing: last, and 0 without", fill.MaxAge)
	for _, name := range slices.Sorted(maps.Keys(c.Range)) {
		bounds := c.Range[name]
		problems.Require(len(bounds) == 2 && bounds[0] < bounds[1], section+".range."+name,
			"is %v; want a minimum and a larger maximum, such as [-50, 60]", bounds)
	}
	problems.Require(c.MaxUnusableShare >= 0 && c.MaxUnusableShare < 1, section+".max_bad",
		"is %v; want 0 (for 0.2) or a share below 1",
		c.MaxUnusableShare)
	if problems.ProblemCount() == before {
		sourceDrivers[c.Kind()].check(c, problems, section)
	}
}

// Open makes the source of a section that was checked.
func Open(c *data.Config) (data.Source, error) { return sourceDrivers[c.Kind()].open(c) }

// OpenStored opens the source of a section that was checked, as it is on the disk. A collector's readings are in the
// folder dir.
func OpenStored(c *data.Config, disk store.Disk, dir string) (survey.StoredSource, error) {
	return sourceDrivers[c.Kind()].stored(c, disk, dir)
}

// Files returns the files that the source reads, by their keys in the section.
func Files(c *data.Config) map[string]string {
	k, known := sourceDrivers[c.Kind()]
	if !known {
		return nil // Check reports it
	}
	return k.files(c)
}
