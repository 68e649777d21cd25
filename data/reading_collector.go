package data

import (
	"log/slog"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/store"
)

// ReadingCollector is a Source that collects by itself, from Start to Close. Before Start it can only be probed.
type ReadingCollector interface {
	Source
	// Start begins to collect. It fails only on what can never work.
	Start(e CollectorEnv) error
}

// CollectorEnv is what a Collector gets of its program.
type CollectorEnv struct {
	RingFolder string // for the ring; its parent must exist, and be the program's alone
	Disk       store.Disk
	RingLimits store.RingLimits
	// ConnectBroker opens a session with the site's broker.
	ConnectBroker func(observe func(mqtt.ObservedMessage)) (mqtt.Conn, error)
	Now           func() time.Time
	Logger        *slog.Logger
}
