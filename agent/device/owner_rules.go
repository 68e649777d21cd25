// Package device decides whether a device may train now, and how many local steps it may take. It applies the owner's
// rules to load, temperature, battery, memory and time of day.
package device

import (
	"time"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// OwnerRule identifies a rule of the device's owner. It is used as a metric label.
type OwnerRule string

// Rules of the device's owner. RuleNone means that no rule restricts the work.
const (
	RuleNone        OwnerRule = "none"
	RuleLoad        OwnerRule = "load"
	RuleTemperature OwnerRule = "temperature"
	RuleBattery     OwnerRule = "battery"
	RuleMemory      OwnerRule = "memory"
	RuleTimeWindow  OwnerRule = "window"
)

// AllRules returns all rules that can restrict the work. The metrics use them as label values.
func AllRules() []OwnerRule {
	return []OwnerRule{RuleLoad, RuleTemperature, RuleBattery, RuleMemory, RuleTimeWindow}
}

// CanReduceSteps reports whether the rule can reduce the number of local steps. Other rules can only stop the work.
func (r OwnerRule) CanReduceSteps() bool {
	return r == RuleLoad || r == RuleTemperature || r == RuleBattery
}

// stopExplanation describes why a rule stops the work.
type stopExplanation struct {
	reason     wire.DeclineReason
	problem    string // description of the problem for the operator
	configKeys string // keys of the rule in agentd.yaml
}

func (r OwnerRule) explainStop() stopExplanation {
	return map[OwnerRule]stopExplanation{
		RuleLoad:        {wire.DeclineBusy, "the CPU is busy with other programs", "device.load"},
		RuleTemperature: {wire.DeclineHot, "the temperature of the device is too high", "device.temperature"},
		RuleBattery: {wire.DeclineLowBattery, "the device is running on battery power",
			"device.battery or device.mains"},
		RuleMemory:     {wire.DeclineLowMemory, "the device has too little free memory", "device.memory"},
		RuleTimeWindow: {wire.DeclineTimeWindow, "the current time is outside the allowed hours", "device.windows"},
	}[r]
}

// EaseStopBand defines the value from which a device linearly reduces its share of local steps and the value at which
// the device stops. A stopped device resumes at EaseThreshold, which avoids frequent switching.
type EaseStopBand struct{ EaseThreshold, StopThreshold float64 }

func (b EaseStopBand) isSet() bool { return b != EaseStopBand{} }

// allowedWorkShare returns the share of work, from 0 to 1, that is allowed at the measured value x.
func (b EaseStopBand) allowedWorkShare(x float64, stopped bool) float64 {
	rising := b.StopThreshold >= b.EaseThreshold
	if !rising {
		b.EaseThreshold, b.StopThreshold, x = -b.EaseThreshold, -b.StopThreshold, -x
	}
	switch {
	case x <= b.EaseThreshold && x < b.StopThreshold:
		return 1
	case x >= b.StopThreshold || stopped:
		return 0
	}
	return (b.StopThreshold - x) / (b.StopThreshold - b.EaseThreshold)
}

// OwnerRules contains the limits that the device's owner has set. The zero value allows work at any time.
type OwnerRules struct {
	Load               EaseStopBand     // one-minute load average per core; ease < stop
	Temperature        EaseStopBand     // temperature of the hottest sensor, °C; ease < stop
	Battery            EaseStopBand     // battery level while discharging, percent; ease > stop
	RequiresMainsPower bool             // true if the device may work only on mains power
	MinFreeMemoryBytes uint64           // minimum available memory in bytes; 0 means no limit
	AllowedTimeWindows spec.TimeWindows // allowed times of day, local time; empty means always
}

// HasRules reports whether any rule is set.
func (r *OwnerRules) HasRules() bool {
	return r.Load.isSet() || r.Temperature.isSet() || r.Battery.isSet() || r.RequiresMainsPower ||
		r.MinFreeMemoryBytes > 0 ||
		len(r.AllowedTimeWindows) > 0
}

// RuleVerdict is the result of applying the owner's rules to a SystemReading.
type RuleVerdict struct {
	LocalStepShare float64   // allowed share of local steps, from 0 to 1; 0 means that no work is allowed
	DecidingRule   OwnerRule // strictest rule that restricted the work, or RuleNone
	SystemReading
}

// MayWork reports whether the device may work.
func (v RuleVerdict) MayWork() bool { return v.LocalStepShare > 0 }

// DeclineReason returns the reason why the device must decline rounds, or 0 if it may work.
func (v RuleVerdict) DeclineReason() wire.DeclineReason {
	if v.MayWork() {
		return 0
	}
	return v.DecidingRule.explainStop().reason
}

// JudgeReading applies the owner's rules to a reading of the device's sensors. The parameter before is the previous
// verdict, or zero at the first call. Values that are missing from the reading impose no limit.
func (r *OwnerRules) JudgeReading(now time.Time, x SystemReading, before RuleVerdict) RuleVerdict {
	v := RuleVerdict{LocalStepShare: 1, DecidingRule: RuleNone, SystemReading: x}
	decide := func(rule OwnerRule, share float64) {
		if share < v.LocalStepShare {
			v.LocalStepShare, v.DecidingRule = share, rule
		}
	}
	band := func(rule OwnerRule, b EaseStopBand, value *float64) {
		if b.isSet() && value != nil {
			decide(rule, b.allowedWorkShare(*value, before.DecidingRule == rule && before.LocalStepShare == 0))
		}
	}
	band(RuleLoad, r.Load, x.LoadPerCore)
	band(RuleTemperature, r.Temperature, x.TemperatureCelsius)
	if x.IsDischarging {
		band(RuleBattery, r.Battery, x.BatteryPercent)
		if r.RequiresMainsPower {
			decide(RuleBattery, 0)
		}
	}
	if r.MinFreeMemoryBytes > 0 && x.AvailableMemoryBytes != nil &&
		*x.AvailableMemoryBytes < float64(r.MinFreeMemoryBytes) {
		decide(RuleMemory, 0)
	}
	if !r.AllowedTimeWindows.Contain(now) {
		decide(RuleTimeWindow, 0)
	}
	return v
}

// RulesWithoutSensor returns the rules that cannot be checked because the reading lacks the value that they limit. A
// device without a battery is assumed to run on mains power.
func (r *OwnerRules) RulesWithoutSensor(x SystemReading) (blind []OwnerRule) {
	for _, c := range []struct {
		rule  OwnerRule
		asked bool
		value *float64
	}{{RuleLoad, r.Load.isSet(), x.LoadPerCore}, {RuleTemperature, r.Temperature.isSet(), x.TemperatureCelsius},
		{RuleMemory, r.MinFreeMemoryBytes > 0, x.AvailableMemoryBytes}} {
		if c.asked && c.value == nil {
			blind = append(blind, c.rule)
		}
	}
	return blind
}
