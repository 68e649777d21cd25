package agent

import (
	"fmt"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/agent/announcement"
	"github.com/fedmesh/fedmesh/agent/budget"
	"github.com/fedmesh/fedmesh/agent/device"
	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/agent/mesh"
	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/agent/presence"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/agent/upload"
	"github.com/fedmesh/fedmesh/observe"
)

// Metrics are the metrics of the agent's events.
var Metrics = slices.Concat([]*observe.Metric{
	DroppedMessages,
	modelVersion, modelBytes, modelFetches,
	trainerEnds,
}, state.Metrics, announcement.Metrics, presence.Metrics, identity.Metrics, budget.Metrics,
	device.Metrics, fetch.Metrics, taskdata.Metrics, predict.Metrics,
	mesh.Metrics, training.Metrics, upload.Metrics)

// ExternalTrainerStarted: a program that trains external models has started and has reported its capabilities.
type ExternalTrainerStarted struct {
	ConfiguredName   string // the name in the device's configuration
	Name             string // the name that the program reports
	Rows             int
	UnconfinedReason string // why the program is not confined; empty if it is
}

// Describe implements observe.Event.
func (e ExternalTrainerStarted) Describe(d *observe.Description) {
	d.Log(observe.Info, "trainer started", "trainer", e.ConfiguredName, "name", e.Name, "rows", e.Rows,
		"not_confined", e.UnconfinedReason)
	d.Resolve(trainerCondition(e.ConfiguredName))
	unconfined := "unconfined trainer " + e.ConfiguredName
	if e.UnconfinedReason == "" {
		d.Resolve(unconfined)
		return
	}
	d.Fail(unconfined, fmt.Sprintf("trainer %s is not confined (%s): it has the same access to memory and network as "+
		"agentd", e.ConfiguredName, e.UnconfinedReason), "delegate a control group to agentd with `systemctl edit "+
		"agentd`, or limit a program that runs by itself in its own unit")
}

var trainerEnds = observe.Counter("trainer_ends_total",
	"Times that a program which trains external models ended, or was ended, though it was needed.")

// ExternalTrainerEnded: a program that trains external models has ended although it is needed.
type ExternalTrainerEnded struct {
	Trainer      string
	Err          error
	RestartDelay time.Duration // after which it is started again at the earliest
}

// Describe implements observe.Event.
func (e ExternalTrainerEnded) Describe(d *observe.Description) {
	d.Inc(trainerEnds)
	d.Log(observe.Error, "trainer ended", "trainer", e.Trainer, "err", e.Err, "restart_in", e.RestartDelay)
	d.Fail(trainerCondition(e.Trainer), fmt.Sprintf("trainer %s has ended, and is started again: %v", e.Trainer, e.Err),
		"see the program's output with `journalctl -u agentd`")
}

func trainerCondition(name string) string { return "trainer " + name }
