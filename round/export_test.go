package round

import "github.com/fedmesh/fedmesh/wire"

// Eligible lets the simulation draw the participants a second time.
func (c *Coordinator) Eligible() []wire.AgentID { return c.eligible() }
