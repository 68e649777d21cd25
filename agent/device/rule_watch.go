package device

import (
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
)

// checkInterval is the time between two checks of the device.
const checkInterval = 30 * time.Second

// RuleJudge applies the owner's rules now and returns the verdict. The parameter before is the previous verdict.
type RuleJudge func(before RuleVerdict) RuleVerdict

// RuleWatch is the part of an agent that enforces the device owner's rules every 30 seconds and before training. It
// declines rounds, reduces local steps or pauses training.
type RuleWatch struct {
	core        *part.AgentCore
	judge       RuleJudge // function that applies the owner's rules; nil if there are none
	verdict     RuleVerdict
	nextCheckAt time.Time
}

// NewRuleWatch returns a RuleWatch. A nil judge allows everything.
func NewRuleWatch(core *part.AgentCore, judge RuleJudge) *RuleWatch {
	return &RuleWatch{core: core, judge: judge, nextCheckAt: core.Loop.Now()}
}

// checkRules applies the owner's rules now and stores the verdict.
func (w *RuleWatch) checkRules() {
	if w.judge == nil {
		return
	}
	w.nextCheckAt = w.core.Loop.Now().Add(checkInterval)
	before := w.verdict
	w.verdict = w.judge(before)
	w.core.Observer.Observe(RulesChecked{RuleVerdict: w.verdict, PreviousVerdict: before})
	w.core.HandleRoundEvent(agentround.OwnerRuleChanged{RuleName: "device", Reason: w.verdict.DeclineReason()})
}

// TrainingMustRest implements part.TrainingRestDecider. It returns true while the rules forbid all work.
func (w *RuleWatch) TrainingMustRest() bool { return w.verdict.DeclineReason() != 0 }

// AllowedStepShare implements part.StepLimiter. It applies the owner's rules to the current state of the device. It
// returns 1 if the rules forbid all work, because a round in progress must be finished.
func (w *RuleWatch) AllowedStepShare() float64 {
	w.checkRules()
	if w.judge == nil || !w.verdict.MayWork() {
		return 1
	}
	return w.verdict.LocalStepShare
}

// Deadline implements part.TickHook.
func (w *RuleWatch) Deadline() (time.Time, bool) { return w.nextCheckAt, w.judge != nil }

// Tick implements part.TickHook.
func (w *RuleWatch) Tick(now time.Time) {
	if !now.Before(w.nextCheckAt) {
		w.checkRules()
	}
}

// Metrics lists the metrics that the events of this package update.
var Metrics = []*observe.Metric{allowedStepShare, decisions, load, temperature, battery, memory}

var (
	allowedStepShare = observe.OptionalGauge("device_share",
		"Share of the local training steps that the device rules currently allow. At 0 the device declines rounds.")
	decisions = &observe.Metric{Name: "device_decisions_total", LabelNames: []string{"rule", "decision"},
		Help: "Number of times that a device rule started to reduce the local training steps (ease) or to decline " +
			"rounds (stop), by rule.",
		InitialSeries: decisionLabelSeries()}
	load = observe.OptionalGauge("device_load_ratio",
		"Load average of the last minute per core. Reported only if device rules are set.")
	temperature = observe.OptionalGauge("device_temperature_celsius",
		"Temperature of the hottest sensor. Reported only if device rules are set.")
	battery = observe.OptionalGauge("device_battery_ratio",
		"Lowest charge of all batteries, from 0 to 1. Reported only if device rules are set.")
	memory = observe.OptionalGauge("device_memory_available_bytes",
		"Memory available without swapping. Reported only if device rules are set.")
)

// Label values of the metric device_decisions_total: a rule stopped the work, or reduced the number of local steps.
const (
	decisionStop = "stop"
	decisionEase = "ease"
)

func decisionLabelSeries() (series [][]string) {
	for _, rule := range AllRules() {
		series = append(series, []string{string(rule), decisionStop})
		if rule.CanReduceSteps() {
			series = append(series, []string{string(rule), decisionEase})
		}
	}
	return series
}

// decisionOfVerdict returns the metric label for a verdict, or "" if no rule restricts the work.
func decisionOfVerdict(v RuleVerdict) string {
	switch {
	case v.DecidingRule == "" || v.LocalStepShare == 1:
		return ""
	case v.LocalStepShare == 0:
		return decisionStop
	}
	return decisionEase
}

// RulesChecked reports that the agent has checked the device against the rules of its owner.
type RulesChecked struct {
	RuleVerdict
	PreviousVerdict RuleVerdict
}

// Describe implements observe.Event. It logs when a rule stops the work, and when work is allowed again.
func (e RulesChecked) Describe(d *observe.EventDescription) {
	const condition = "device"
	if e.MayWork() {
		d.ResolveCondition(condition)
	} else {
		rule := e.DecidingRule.explainStop()
		d.RaiseCondition(condition, "this device declines rounds: "+rule.problem,
			"wait until the rule allows training again, or change "+rule.configKeys+" in agentd.yaml and restart "+
				"agentd")
	}
	d.SetGauge(allowedStepShare, e.LocalStepShare)
	setIfKnown := func(m *observe.Metric, x *float64, scale float64) {
		if x != nil {
			d.SetGauge(m, *x*scale)
		}
	}
	setIfKnown(load, e.LoadPerCore, 1)
	setIfKnown(temperature, e.TemperatureCelsius, 1)
	setIfKnown(battery, e.BatteryPercent, 0.01)
	setIfKnown(memory, e.AvailableMemoryBytes, 1)
	decision := decisionOfVerdict(e.RuleVerdict)
	if decision != "" && (e.DecidingRule != e.PreviousVerdict.DecidingRule ||
		decision != decisionOfVerdict(e.PreviousVerdict)) {
		d.IncCounter(decisions, string(e.DecidingRule), decision)
	}
	switch stopped := e.PreviousVerdict.DecidingRule != "" && !e.PreviousVerdict.MayWork(); {
	case !e.MayWork() && (!stopped || e.DecidingRule != e.PreviousVerdict.DecidingRule):
		d.Log(observe.Info, "training stopped by a device rule", "rule", e.DecidingRule)
	case e.MayWork() && stopped:
		d.Log(observe.Info, "device rules allow training again", "share_of_local_steps",
			observe.RoundToFourDigits(e.LocalStepShare))
	}
}
