package agent

import (
	"fmt"

	"github.com/fedmesh/fedmesh/wire"
)

// BootCounterLostError ends an agent that found, retained at the broker, a presence of an
// earlier start of its own with this epoch: its counter of starts was lost, or an
// older copy put back. It must start again, above that.
type BootCounterLostError struct{ Epoch wire.Epoch }

func (e *BootCounterLostError) Error() string {
	return fmt.Sprintf("agent: the broker has a presence of start %d of this agent: its counter of starts is behind",
		e.Epoch)
}
