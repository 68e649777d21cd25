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
	None        Rule = "none"
	Load        Rule = "load"
	Temperature Rule = "temperature"
	Battery     Rule = "battery"
	Memory      Rule = "memory"
	Hours       Rule = "window"
)

// AllRules returns all rules, for closed label sets.
func AllRules() []Rule { return []Rule{Load, Temperature, Battery, Memory, Hours} }

// Eases tells whether the rule may also ask for fewer local steps; else it only stops.
func (r Rule) Eases() bool { return r == Load || r == Temperature || r == Battery }

// Declines is why an agent declines that a rule has stopped.
func (r Rule) Declines() wire.DeclineReason {
	return map[Rule]wire.DeclineReason{
		Load: wire.DeclineBusy, Temperature: wire.DeclineHot, Battery: wire.DeclineBattery, Memory: wire.DeclineMemory,
		Hours: wire.DeclineWindow,
	}[r]
}

// Band says from which value on a device works less, and at which it stops.
// Between the two its share of local steps falls evenly. Once stopped, it
// starts again when it is easy: an agent that comes and goes helps nobody.
type Band struct{ Ease, Stop float64 }

func (b Band) set() bool { return b != Band{} }

// share is what may be done at x, 0 to 1.
func (b Band) share(x float64, stopped bool) float64 {
	rising := b.Stop >= b.Ease
	if !rising {
		b.Ease, b.Stop, x = -b.Ease, -b.Stop, -x
	}
	switch {
	case x <= b.Ease && x < b.Stop:
		return 1
	case x >= b.Stop || stopped:
		return 0
	}
	return (b.Stop - x) / (b.Stop - b.Ease)
}

// Rules are what the owner of a device allows. Without any it always works.
type Rules struct {
	Load        Band         // of the last minute, per core; Ease < Stop
	Temperature Band         // of the hottest sensor, in °C; Ease < Stop
	Battery     Band         // percent, while it discharges; Ease > Stop
	Mains       bool         // work only on mains
	Memory      uint64       // bytes that must be available; 0 = any
	Windows     spec.Windows // in local time; none = always
}

// Any tells whether there are rules.
func (r *Rules) Any() bool {
	return r.Load.set() || r.Temperature.set() || r.Battery.set() || r.Mains || r.Memory > 0 || len(r.Windows) > 0
}

// Verdict is what the rules say of a reading.
type Verdict struct {
	Share float64 // of the local steps that speed allows; 0 = the device may not work
	Rule  Rule    // that decided
	Reading
}

// May tells whether the device may work.
func (v Verdict) May() bool { return v.Share > 0 }

// Declines is why an agent declines; 0 if it does not.
func (v Verdict) Declines() wire.DeclineReason {
	if v.May() {
		return 0
	}
	return v.Rule.Declines()
}

// Judge returns what the rules say now; before is the verdict before this
// one, zero at first. A reading that the system does not have decides nothing.
func (r *Rules) Judge(now time.Time, x Reading, before Verdict) Verdict {
	v := Verdict{Share: 1, Rule: None, Reading: x}
	decide := func(rule Rule, share float64) {
		if share < v.Share {
			v.Share, v.Rule = share, rule
		}
	}
	band := func(rule Rule, b Band, value *float64) {
		if b.set() && value != nil {
			decide(rule, b.share(*value, before.Rule == rule && before.Share == 0))
		}
	}
	band(Load, r.Load, x.Load)
	band(Temperature, r.Temperature, x.Temperature)
	if x.Discharging {
		band(Battery, r.Battery, x.Battery)
		if r.Mains {
			decide(Battery, 0)
		}
	}
	if r.Memory > 0 && x.Memory != nil && *x.Memory < float64(r.Memory) {
		decide(Memory, 0)
	}
	if !r.Windows.Contain(now) {
		decide(Hours, 0)
	}
	return v
}

// Blind lists the rules that a reading has no value for: the system has no
// such sensor, or does not show it to this program. A device without a battery
// is on mains.
func (r *Rules) Blind(x Reading) (blind []Rule) {
	for _, c := range []struct {
		rule  Rule
		asked bool
		value *float64
	}{{Load, r.Load.set(), x.Load}, {Temperature, r.Temperature.set(), x.Temperature},
		{Memory, r.Memory > 0, x.Memory}} {
		if c.asked && c.value == nil {
			blind = append(blind, c.rule)
		}
	}
	return blind
}
