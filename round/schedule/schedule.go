// Package schedule decides when rounds may open: in which time windows, and after how many agents have new rows.
//
// The package reads no clock and does no I/O. Package round calls it and passes the time.
package schedule

import (
	"time"

	"github.com/fedmesh/fedmesh/spec"
)

// Config configures when rounds open. The zero value allows rounds at any time.
type Config struct {
	// Windows are the time windows in which rounds may open, such as "22:00-06:00" or "Sat-Sun 00:00-24:00". If the
	// list is empty, rounds may open at any time.
	Windows  []string         `yaml:"windows"`
	TimeZone string           `yaml:"zone"` // time zone of the windows; empty means UTC
	NewRows  NewRowsCondition `yaml:"new_rows"`
	// Location is the loaded time zone; nil means UTC.
	Location *time.Location `yaml:"-"`
}

// NewRowsCondition delays a round until MinAgents agents each have MinRowsPerAgent rows that no round has used. With
// MinAgents = 0 there is no delay.
type NewRowsCondition struct {
	MinAgents       int `yaml:"agents"`
	MinRowsPerAgent int `yaml:"rows"`
}

// IsEnabled reports whether rounds wait for new rows.
func (n *NewRowsCondition) IsEnabled() bool { return n.MinAgents > 0 }

// maxRowsPerAgent is the maximum value of MinRowsPerAgent, because messages encode the number in 32 bits.
const maxRowsPerAgent = 1_000_000_000

// Validate returns all configuration errors, joined, each a [*spec.FieldError].
func (c *Config) Validate() error {
	var check spec.ProblemList
	_, err := spec.ParseTimeWindows(c.Windows)
	check.AddError("windows", err)
	check.Require(c.TimeZone == "" || len(c.Windows) > 0, "zone", "is %s, but schedule.windows is empty: add time "+
		"windows, or remove this key",
		c.TimeZone)
	n := &c.NewRows
	check.Require(n.MinAgents >= 0 && (n.MinAgents > 0) == (n.MinRowsPerAgent > 0), "new_rows.agents",
		"must be at least 1 if new_rows.rows (%d) is above 0, and 0 otherwise, but is %d", n.MinRowsPerAgent,
		n.MinAgents)
	check.Require(n.MinRowsPerAgent >= 0 && n.MinRowsPerAgent <= maxRowsPerAgent, "new_rows.rows",
		"must be between 0 and %d, but is %d",
		maxRowsPerAgent, n.MinRowsPerAgent)
	return check.Err()
}

// NextRoundOpening returns the earliest time at which a round may open: now, or the start of the next window.
func (c *Config) NextRoundOpening(now time.Time) time.Time {
	all, err := spec.ParseTimeWindows(c.Windows)
	if err != nil || len(all) == 0 {
		return now
	}
	zone := c.Location
	if zone == nil {
		zone = time.UTC
	}
	return all.NextTimeInside(now.In(zone))
}
