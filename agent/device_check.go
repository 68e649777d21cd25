package agent

import (
	"time"

	"github.com/fedmesh/fedmesh/agent/device"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
)

// deviceCheckInterval is the time between two looks at the device.
const deviceCheckInterval = 30 * time.Second

// checkDeviceRules holds the rules of the device's owner against what the system tells.
func (a *Agent) checkDeviceRules() {
	if a.cfg.JudgeDevice == nil {
		return
	}
	a.deviceCheckAt = a.owner.Now().Add(deviceCheckInterval)
	before := a.deviceVerdict
	a.deviceVerdict = a.cfg.JudgeDevice(before)
	a.cfg.Observer.Observe(DeviceRulesChecked{Verdict: a.deviceVerdict, PreviousVerdict: before})
	a.updateBlockRest()
	a.stepRoundMachine(round.OwnerBarredRounds{Reason: a.deviceVerdict.DeclineReason()})
}

// updateBlockRest has a block without an end rest, or go on.
func (a *Agent) updateBlockRest() {
	if b := a.endless; b != nil && b.mustRest != a.blockMustRest() {
		a.requestRest(b, a.blockMustRest())
	}
}

// blockMustRest tells whether a block without an end must rest: the device's owner lets it do nothing now, or it mixes
// over an uplink that may carry nothing more.
func (a *Agent) blockMustRest() bool {
	return a.deviceVerdict.DeclineReason() != 0 || a.mesh.sharesUplink && a.isBudgetSpent()
}

var (
	allowedStepShare = observe.OptionalGauge("device_share",
		"Share of the local steps that the rules for this device allow now; 0 = it declines. Only with rules.")
	deviceDecisions = &observe.Metric{Name: "device_decisions_total", Labels: []string{"rule", "decision"},
		Help:   "Times that the rules for this device began to spare it (ease) or to bar it (stop), by the rule.",
		Series: deviceDecisionSeries()}
	deviceLoad = observe.OptionalGauge("device_load_ratio",
		"Average number of programs that ran or wanted to, in the last minute, per core; only with rules.")
	deviceTemperature = observe.OptionalGauge("device_temperature_celsius",
		"Temperature of the hottest sensor; only with rules.")
	deviceBattery = observe.OptionalGauge("device_battery_ratio",
		"Level of the emptiest battery, from 0 to 1; only with rules.")
	deviceMemory = observe.OptionalGauge("device_memory_available_bytes",
		"Memory that programs can have without swapping; only with rules.")
)

// The decisions of a device rule, as label values.
const (
	decisionStop = "stop"
	decisionEase = "ease"
)

func deviceDecisionSeries() (series [][]string) {
	for _, rule := range device.AllRules() {
		series = append(series, []string{string(rule), decisionStop})
		if rule.CanReduceSteps() {
			series = append(series, []string{string(rule), decisionEase})
		}
	}
	return series
}

// decisionOf returns the decision of a verdict; empty if no rule restricts the work.
func decisionOf(v device.Verdict) string {
	switch {
	case v.Rule == "" || v.LocalStepShare == 1:
		return ""
	case v.LocalStepShare == 0:
		return decisionStop
	}
	return decisionEase
}

// DeviceRulesChecked: the agent has compared the state of the device with the rules of its owner.
type DeviceRulesChecked struct {
	device.Verdict
	PreviousVerdict device.Verdict
}

// Describe implements observe.Event. It logs when a rule stops the work, and when work is allowed again.
func (e DeviceRulesChecked) Describe(d *observe.Description) {
	d.Set(allowedStepShare, e.LocalStepShare)
	setIfKnown := func(m *observe.Metric, x *float64, scale float64) {
		if x != nil {
			d.Set(m, *x*scale)
		}
	}
	setIfKnown(deviceLoad, e.Load, 1)
	setIfKnown(deviceTemperature, e.Temperature, 1)
	setIfKnown(deviceBattery, e.BatteryPercent, 0.01)
	setIfKnown(deviceMemory, e.AvailableMemory, 1)
	decision := decisionOf(e.Verdict)
	if decision != "" && (e.Rule != e.PreviousVerdict.Rule || decision != decisionOf(e.PreviousVerdict)) {
		d.Inc(deviceDecisions, string(e.Rule), decision)
	}
	switch stopped := e.PreviousVerdict.Rule != "" && !e.PreviousVerdict.MayWork(); {
	case !e.MayWork() && (!stopped || e.Rule != e.PreviousVerdict.Rule):
		d.Log(observe.Info, "device rule stops work", "rule", e.Rule)
	case e.MayWork() && stopped:
		d.Log(observe.Info, "device rules allow work again", "share_of_local_steps", observe.Rounded(e.LocalStepShare))
	}
}
