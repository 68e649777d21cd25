package data

import (
	"log/slog"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/store"
)

// Collector is a Source that collects by itself, from Start to Close. Before Start it can only be probed.
type Collector interface {
	Source
	// Start begins to collect. It fails only on what can never work.
	Start(e CollectorEnv) error
}

// CollectorEnv is what a Collector gets of its program.
type CollectorEnv struct {
	Dir        string // for the ring; its parent must exist, and be the program's alone
	Disk       store.Disk
	RingLimits store.RingLimits
	// Connect opens a session with the site's broker.
	Connect func(observe func(mqtt.ObservedMessage)) (mqtt.Conn, error)
	Now     func() time.Time
	Logger  *slog.Logger
}
