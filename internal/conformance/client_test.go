package conformance

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// patience is the timeout of each wait for an event.
const patience = 30 * time.Second

func clientOf(id wire.AgentID) string { return federation + "-" + string(id) }
