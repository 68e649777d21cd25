package external

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/observe"
)

// Metrics lists the metrics that the events of this package update.
var Metrics = []*observe.Metric{trainerEnds}

// ProgramStarted reports that an external training program has started and has sent its capabilities.
type ProgramStarted struct {
	ConfiguredName   string // trainer name in the device's configuration
	ReportedName     string // name reported by the program itself
	Rows             int
	UnconfinedReason string // reason why the program has no sandbox; empty if it has one
}

// Describe implements observe.Event.
func (e ProgramStarted) Describe(d *observe.EventDescription) {
	d.Log(observe.Info, "trainer started", "trainer", e.ConfiguredName, "name", e.ReportedName, "rows", e.Rows,
		"unconfined_reason", e.UnconfinedReason)
	d.ResolveCondition(trainerConditionName(e.ConfiguredName))
	unconfined := "unconfined trainer " + e.ConfiguredName
	if e.UnconfinedReason == "" {
		d.ResolveCondition(unconfined)
		return
	}
	d.RaiseCondition(unconfined,
		fmt.Sprintf("trainer %s runs without a sandbox (%s): it has the same access to memory and network as "+
			"agentd", e.ConfiguredName, e.UnconfinedReason), "delegate a control group to agentd with `systemctl "+
			"edit agentd`; if the trainer is a service of its own, set the limits in its unit")
}

var trainerEnds = observe.Counter("trainer_ends_total",
	"Unexpected exits of external training programs.")

// ProgramEnded reports that an external training program has ended unexpectedly.
type ProgramEnded struct {
	Trainer      string
	Err          error
	RestartDelay time.Duration // minimum time until the program is restarted
}

// Describe implements observe.Event.
func (e ProgramEnded) Describe(d *observe.EventDescription) {
	d.IncCounter(trainerEnds)
	d.Log(observe.Error, "trainer exited", "trainer", e.Trainer, "err", e.Err, "restart_in", e.RestartDelay)
	d.RaiseCondition(trainerConditionName(e.Trainer), fmt.Sprintf("trainer %s exited and is being restarted: %v",
		e.Trainer, e.Err),
		"check the output of the trainer with `journalctl -u agentd`")
}

func trainerConditionName(name string) string { return "trainer " + name }
