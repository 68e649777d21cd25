package data

import (
	"log/slog"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/store"
)

// ReadingCollector is a Source that collects readings in the background from the call of Start to Close. Before Start,
// only Probe may be called.
type ReadingCollector interface {
	Source
	// Start starts collecting. It returns an error only if collecting can never succeed.
	Start(e CollectorEnv) error
}

// CollectorEnv contains the dependencies that a program passes to a ReadingCollector.
type CollectorEnv struct {
	RingFolder string // folder of the ring; its parent must exist and belong to the program
	Disk       store.Disk
	RingLimits store.RingLimits
	// ConnectBroker opens a session with the site's broker.
	ConnectBroker func(observe func(mqtt.ObservedMessage)) (mqtt.Conn, error)
	Now           func() time.Time
	Logger        *slog.Logger
}
