package settings

import (
	"time"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
)

// Readings configures data sources that record sensor readings themselves.
type Readings struct {
	Broker    ReadingsBroker `yaml:"broker"` // broker of the local site
	Retention Retention      `yaml:"keep"`
}

// ReadingsBroker configures the broker of the local site, from which the device receives sensor readings.
type ReadingsBroker struct {
	BrokerAccess `yaml:",inline"`
	QoS          int `yaml:"qos"` // MQTT quality of service of the subscriptions: 0 or 1
}

// Retention limits the sensor readings that the device keeps on disk. All limits apply at the same time.
type Retention struct {
	MaxReadings int           `yaml:"rows"`  // maximum number of readings; 0 means no limit
	Age         time.Duration `yaml:"age"`   // maximum age compared to the newest reading; 0 means no limit
	Bytes       spec.ByteSize `yaml:"bytes"` // maximum number of bytes on disk
}

// minRetainedReadings is the minimum value of the key readings.keep.rows.
const minRetainedReadings = 1000

// SiteBroker returns the broker settings for receiving readings, with defaults filled in.
func (r *Readings) SiteBroker() Broker {
	return Broker{BrokerAccess: r.Broker.withSiteBrokerDefaults("readings-password"), QoS: r.Broker.QoS}
}

// RingBounds returns the limits as the type that the ring file in package store uses.
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
