// Package device says whether a device may work now, and how hard: from its
// load, its temperature, its battery, its memory and the time of day, as the
// system tells them, by the rules of its owner.
package device

import (
	"time"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// OwnerRule is what decided. It is a metric's label.
type OwnerRule string

// The rules; None decides where none of them has anything against working.
const (
	RuleNone        OwnerRule = "none"
	RuleLoad        OwnerRule = "load"
	RuleTemperature OwnerRule = "temperature"
	RuleBattery     OwnerRule = "battery"
	RuleMemory      OwnerRule = "memory"
	RuleTimeWindow  OwnerRule = "window"
)

// AllRules returns all rules, for closed label sets.
func AllRules() []OwnerRule {
	return []OwnerRule{RuleLoad, RuleTemperature, RuleBattery, RuleMemory, RuleTimeWindow}
}

// CanReduceSteps tells whether the rule may also ask for fewer local steps; else it only stops.
func (r OwnerRule) CanReduceSteps() bool {
	return r == RuleLoad || r == RuleTemperature || r == RuleBattery
}

// stopExplanation describes why a rule stops the work.
type stopExplanation struct {
	reason     wire.DeclineReason
	problem    string // for people
	configKeys string // of the rule in agentd.yaml
}

func (r OwnerRule) explainStop() stopExplanation {
	return map[OwnerRule]stopExplanation{
		RuleLoad:        {wire.DeclineBusy, "other programs keep it busy", "device.load"},
		RuleTemperature: {wire.DeclineHot, "it is too hot", "device.temperature"},
		RuleBattery:     {wire.DeclineLowBattery, "it runs on its battery", "device.battery or device.mains"},
		RuleMemory:      {wire.DeclineLowMemory, "too little memory is free", "device.memory"},
		RuleTimeWindow:  {wire.DeclineTimeWindow, "its owner allows work at other hours", "device.windows"},
	}[r]
}

// EaseStopBand says from which value on a device works less, and at which it stops.
// Between the two its share of local steps falls evenly. Once stopped, it
// starts again when it is easy: an agent that comes and goes helps nobody.
type EaseStopBand struct{ EaseThreshold, StopThreshold float64 }

func (b EaseStopBand) isSet() bool { return b != EaseStopBand{} }

// allowedWorkShare is what may be done at x, 0 to 1.
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

// OwnerRules are what the owner of a device allows. Without any it always works.
type OwnerRules struct {
	Load               EaseStopBand     // of the last minute, per core; Ease < Stop
	Temperature        EaseStopBand     // of the hottest sensor, in °C; Ease < Stop
	Battery            EaseStopBand     // percent, while it discharges; Ease > Stop
	RequiresMainsPower bool             // work only on mains
	MinFreeMemoryBytes uint64           // bytes that must be available; 0 = any
	AllowedTimeWindows spec.TimeWindows // in local time; none = always
}

// HasRules tells whether there are rules.
func (r *OwnerRules) HasRules() bool {
	return r.Load.isSet() || r.Temperature.isSet() || r.Battery.isSet() || r.RequiresMainsPower ||
		r.MinFreeMemoryBytes > 0 ||
		len(r.AllowedTimeWindows) > 0
}

// RuleVerdict is what the rules say of a reading.
type RuleVerdict struct {
	LocalStepShare float64   // of the local steps that speed allows; 0 = the device may not work
	DecidingRule   OwnerRule // that decided
	SystemReading
}

// MayWork tells whether the device may work.
func (v RuleVerdict) MayWork() bool { return v.LocalStepShare > 0 }

// DeclineReason is why an agent declines; 0 if it does not.
func (v RuleVerdict) DeclineReason() wire.DeclineReason {
	if v.MayWork() {
		return 0
	}
	return v.DecidingRule.explainStop().reason
}

// JudgeReading returns what the rules say now; before is the verdict before this
// one, zero at first. A reading that the system does not have decides nothing.
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

// RulesWithoutSensor lists the rules that a reading has no value for: the system has no
// such sensor, or does not show it to this program. A device without a battery
// is on mains.
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
