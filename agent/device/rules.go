// Package device says whether a device may work now, and how hard: from its
// load, its temperature, its battery, its memory and the time of day, as the
// system tells them, by the rules of its owner.
package device

import (
	"time"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Rule is what decided. It is a metric's label.
type Rule string

// The rules; None decides where none of them has anything against working.
const (
	RuleNone        Rule = "none"
	RuleLoad        Rule = "load"
	RuleTemperature Rule = "temperature"
	RuleBattery     Rule = "battery"
	RuleMemory      Rule = "memory"
	RuleTimeWindow  Rule = "window"
)

// AllRules returns all rules, for closed label sets.
func AllRules() []Rule {
	return []Rule{RuleLoad, RuleTemperature, RuleBattery, RuleMemory, RuleTimeWindow}
}

// CanReduceSteps tells whether the rule may also ask for fewer local steps; else it only stops.
func (r Rule) CanReduceSteps() bool { return r == RuleLoad || r == RuleTemperature || r == RuleBattery }

// stop describes why a rule stops the work.
type stop struct {
	reason  wire.DeclineReason
	problem string // for people
	keys    string // of the rule in agentd.yaml
}

func (r Rule) stop() stop {
	return map[Rule]stop{
		RuleLoad:        {wire.DeclineBusy, "other programs keep it busy", "device.load"},
		RuleTemperature: {wire.DeclineHot, "it is too hot", "device.temperature"},
		RuleBattery:     {wire.DeclineBattery, "it runs on its battery", "device.battery or device.mains"},
		RuleMemory:      {wire.DeclineMemory, "too little memory is free", "device.memory"},
		RuleTimeWindow:  {wire.DeclineWindow, "its owner allows work at other hours", "device.windows"},
	}[r]
}

// EaseStopBand says from which value on a device works less, and at which it stops.
// Between the two its share of local steps falls evenly. Once stopped, it
// starts again when it is easy: an agent that comes and goes helps nobody.
type EaseStopBand struct{ EaseThreshold, StopThreshold float64 }

func (b EaseStopBand) set() bool { return b != EaseStopBand{} }

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

// Rules are what the owner of a device allows. Without any it always works.
type Rules struct {
	Load          EaseStopBand     // of the last minute, per core; Ease < Stop
	Temperature   EaseStopBand     // of the hottest sensor, in °C; Ease < Stop
	Battery       EaseStopBand     // percent, while it discharges; Ease > Stop
	MainsOnly     bool             // work only on mains
	MinFreeMemory uint64           // bytes that must be available; 0 = any
	Windows       spec.TimeWindows // in local time; none = always
}

// Any tells whether there are rules.
func (r *Rules) Any() bool {
	return r.Load.set() || r.Temperature.set() || r.Battery.set() || r.MainsOnly || r.MinFreeMemory > 0 ||
		len(r.Windows) > 0
}

// Verdict is what the rules say of a reading.
type Verdict struct {
	LocalStepShare float64 // of the local steps that speed allows; 0 = the device may not work
	Rule           Rule    // that decided
	SystemReading
}

// MayWork tells whether the device may work.
func (v Verdict) MayWork() bool { return v.LocalStepShare > 0 }

// DeclineReason is why an agent declines; 0 if it does not.
func (v Verdict) DeclineReason() wire.DeclineReason {
	if v.MayWork() {
		return 0
	}
	return v.Rule.stop().reason
}

// Judge returns what the rules say now; before is the verdict before this
// one, zero at first. A reading that the system does not have decides nothing.
func (r *Rules) Judge(now time.Time, x SystemReading, before Verdict) Verdict {
	v := Verdict{LocalStepShare: 1, Rule: RuleNone, SystemReading: x}
	decide := func(rule Rule, share float64) {
		if share < v.LocalStepShare {
			v.LocalStepShare, v.Rule = share, rule
		}
	}
	band := func(rule Rule, b EaseStopBand, value *float64) {
		if b.set() && value != nil {
			decide(rule, b.allowedWorkShare(*value, before.Rule == rule && before.LocalStepShare == 0))
		}
	}
	band(RuleLoad, r.Load, x.Load)
	band(RuleTemperature, r.Temperature, x.Temperature)
	if x.Discharging {
		band(RuleBattery, r.Battery, x.BatteryPercent)
		if r.MainsOnly {
			decide(RuleBattery, 0)
		}
	}
	if r.MinFreeMemory > 0 && x.AvailableMemory != nil && *x.AvailableMemory < float64(r.MinFreeMemory) {
		decide(RuleMemory, 0)
	}
	if !r.Windows.Contain(now) {
		decide(RuleTimeWindow, 0)
	}
	return v
}

// RulesWithoutSensor lists the rules that a reading has no value for: the system has no
// such sensor, or does not show it to this program. A device without a battery
// is on mains.
func (r *Rules) RulesWithoutSensor(x SystemReading) (blind []Rule) {
	for _, c := range []struct {
		rule  Rule
		asked bool
		value *float64
	}{{RuleLoad, r.Load.set(), x.Load}, {RuleTemperature, r.Temperature.set(), x.Temperature},
		{RuleMemory, r.MinFreeMemory > 0, x.AvailableMemory}} {
		if c.asked && c.value == nil {
			blind = append(blind, c.rule)
		}
	}
	return blind
}
