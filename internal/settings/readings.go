package settings

import (
	"time"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
)

// Readings configures data sources that collect readings themselves.
type Readings struct {
	Broker    ReadingsBroker `yaml:"broker"` // broker of the site
	Retention Retention      `yaml:"keep"`
}

// ReadingsBroker configures the site's broker, from which the device receives its readings.
type ReadingsBroker struct {
	BrokerAccess `yaml:",inline"`
	QoS          int `yaml:"qos"` // QoS of the subscriptions: 0 or 1
}

// Retention limits the readings that the device keeps. All limits apply.
type Retention struct {
	MaxReadings int           `yaml:"rows"`  // maximum number of readings; 0 means no limit
	Age         time.Duration `yaml:"age"`   // maximum age relative to the newest reading; 0 means no limit
	Bytes       spec.ByteSize `yaml:"bytes"` // maximum number of bytes on disk
}

// minRetainedReadings is the minimum of readings.keep.rows.
const minRetainedReadings = 1000

// SiteBroker returns the broker settings for receiving readings, with defaults filled in.
func (r *Readings) SiteBroker() Broker {
	return Broker{BrokerAccess: r.Broker.withSiteBrokerDefaults("readings-password"), QoS: r.Broker.QoS}
}

// RingBounds returns the limits in the form of package store.
func (r *Readings) RingBounds() store.RingLimits {
	return store.RingLimits{MaxEntries: r.Retention.MaxReadings, MaxAge: r.Retention.Age,
		MaxBytes: int64(r.Retention.Bytes)}
}

func (c *SettingsChecker) checkReadings(r *Readings, federation string, fromBroker bool) {
	c.Require(r.Retention.Bytes >= store.MinRingBytes, "readings.keep.bytes", "must be at least 1MiB, but is %s",
		r.Retention.Bytes)
	c.Require(r.Retention.MaxReadings == 0 || r.Retention.MaxReadings >= minRetainedReadings, "readings.keep.rows",
		"must be 0 (no limit) or at least %d, but is %d", minRetainedReadings, r.Retention.MaxReadings)
	c.Require(r.Retention.Age >= 0, "readings.keep.age", "must not be negative, but is %s", r.Retention.Age)
	c.Require(fromBroker == (len(r.Broker.URLs) > 0), "readings.broker.url",
		"must be set if data.source is mqtt, and must be empty otherwise")
	if len(r.Broker.URLs) == 0 {
		return
	}
	var of SettingsChecker
	site := r.SiteBroker()
	of.CheckBroker(&site, federation)
	c.AddSectionErrors("readings", of.Err())
}
