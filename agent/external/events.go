package external

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/observe"
)

// Metrics are the metrics of this package's events.
var Metrics = []*observe.Metric{trainerEnds}

// ProgramStarted reports that an external training program has started and has sent its capabilities.
type ProgramStarted struct {
	ConfiguredName   string // name in the device's configuration
	ReportedName     string // name that the program reports
	Rows             int
	UnconfinedReason string // reason why the program is not confined; empty if it is
}

// Describe implements observe.Event.
func (e ProgramStarted) Describe(d *observe.EventDescription) {
	d.Log(observe.Info, "trainer started", "trainer", e.ConfiguredName, "name", e.ReportedName, "rows", e.Rows,
		"not_confined", e.UnconfinedReason)
	d.ResolveCondition(trainerConditionName(e.ConfiguredName))
	unconfined := "unconfined trainer " + e.ConfiguredName
	if e.UnconfinedReason == "" {
		d.ResolveCondition(unconfined)
		return
	}
	d.RaiseCondition(unconfined,
		fmt.Sprintf("trainer %s is not confined (%s): it has the same access to memory and network as "+
			"agentd", e.ConfiguredName, e.UnconfinedReason), "delegate a control group to agentd with `systemctl edit "+
			"agentd`, or limit a program that runs by itself in its own unit")
}

var trainerEnds = observe.Counter("trainer_ends_total",
	"Unexpected exits of external training programs.")

// ProgramEnded reports that an external training program has ended although it is needed.
type ProgramEnded struct {
	Trainer      string
	Err          error
	RestartDelay time.Duration // minimum time until the program is restarted
}

// Describe implements observe.Event.
func (e ProgramEnded) Describe(d *observe.EventDescription) {
	d.IncCounter(trainerEnds)
	d.Log(observe.Error, "trainer ended", "trainer", e.Trainer, "err", e.Err, "restart_in", e.RestartDelay)
	d.RaiseCondition(trainerConditionName(e.Trainer), fmt.Sprintf("trainer %s has ended, and is started again: %v",
		e.Trainer, e.Err),
		"see the program's output with `journalctl -u agentd`")
}

func trainerConditionName(name string) string { return "trainer " + name }
