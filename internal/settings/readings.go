package settings

import (
	"time"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
)

// Readings is for sources of data that collect by themselves.
type Readings struct {
	Broker Broker `yaml:"broker"` // of the site
	Keep   Keep   `yaml:"keep"`
}

// Keep says how many readings the device keeps: each bound holds.
type Keep struct {
	Rows  int           `yaml:"rows"`  // readings; 0 = no bound
	Age   time.Duration `yaml:"age"`   // counted back from the newest; 0 = no bound
	Bytes spec.ByteSize `yaml:"bytes"` // on the disk
}

// leastRows is the least bound that is worth keeping.
const leastRows = 1000

// Site returns the broker of the site.
func (r *Readings) Site() Broker { return r.Broker.ofSite("readings-password") }

// Ring returns the bounds in the form of package store.
func (r *Readings) Ring() store.Keep {
	return store.Keep{Entries: r.Keep.Rows, Age: r.Keep.Age, Bytes: int64(r.Keep.Bytes)}
}

func (c *Check) readings(r *Readings, federation string, fromBroker bool) {
	c.Need(r.Keep.Bytes >= store.LeastRing, "readings.keep.bytes", "must be at least 1MiB, is %s", r.Keep.Bytes)
	c.Need(r.Keep.Rows == 0 || r.Keep.Rows >= leastRows, "readings.keep.rows",
		"must be 0 (no bound) or at least %d, is %d", leastRows, r.Keep.Rows)
	c.Need(r.Keep.Age >= 0, "readings.keep.age", "must not be negative, is %s", r.Keep.Age)
	c.Need(fromBroker == (len(r.Broker.URLs) > 0), "readings.broker.url",
		"goes with data.source: mqtt: give both or neither")
	if len(r.Broker.URLs) == 0 {
		return
	}
	var of Check
	site := r.Site()
	of.Broker(&site, federation)
	c.Take("readings", of.Err())
}
