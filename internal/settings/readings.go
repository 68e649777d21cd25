package settings

import (
	"time"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
)

// Readings is for sources of data that collect by themselves.
type Readings struct {
	Broker    ReadingsBroker `yaml:"broker"` // of the site
	Retention Retention      `yaml:"keep"`
}

// ReadingsBroker is the broker of the site, from which the device gets its readings.
type ReadingsBroker struct {
	BrokerAccess `yaml:",inline"`
	QoS          int `yaml:"qos"` // of the subscriptions: 0 or 1
}

// Retention says how many readings the device keeps: each bound holds.
type Retention struct {
	MaxReadings int           `yaml:"rows"`  // readings; 0 = no bound
	Age         time.Duration `yaml:"age"`   // counted back from the newest; 0 = no bound
	Bytes       spec.ByteSize `yaml:"bytes"` // on the disk
}

// minRetainedReadings is the least bound that is worth keeping.
const minRetainedReadings = 1000

// SiteBroker returns the broker of the site.
func (r *Readings) SiteBroker() Broker {
	return Broker{BrokerAccess: r.Broker.withSiteBrokerDefaults("readings-password"), QoS: r.Broker.QoS}
}

// RingBounds returns the bounds in the form of package store.
func (r *Readings) RingBounds() store.RingLimits {
	return store.RingLimits{MaxEntries: r.Retention.MaxReadings, MaxAge: r.Retention.Age,
		MaxBytes: int64(r.Retention.Bytes)}
}

func (c *SettingsChecker) checkReadings(r *Readings, federation string, fromBroker bool) {
	c.Require(r.Retention.Bytes >= store.MinRingBytes, "readings.keep.bytes", "must be at least 1MiB, is %s",
		r.Retention.Bytes)
	c.Require(r.Retention.MaxReadings == 0 || r.Retention.MaxReadings >= minRetainedReadings, "readings.keep.rows",
		"must be 0 (no bound) or at least %d, is %d", minRetainedReadings, r.Retention.MaxReadings)
	c.Require(r.Retention.Age >= 0, "readings.keep.age", "must not be negative, is %s", r.Retention.Age)
	c.Require(fromBroker == (len(r.Broker.URLs) > 0), "readings.broker.url",
		"goes with data.source: mqtt: give both or neither")
	if len(r.Broker.URLs) == 0 {
		return
	}
	var of SettingsChecker
	site := r.SiteBroker()
	of.CheckBroker(&site, federation)
	c.AddSectionErrors("readings", of.Err())
}
