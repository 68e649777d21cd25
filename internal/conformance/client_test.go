package conformance

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// patience bounds each wait for an event; no test waits that long.
const patience = 30 * time.Second

func clientOf(id wire.AgentID) string { return federation + "-" + string(id) }
