package device

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// TestWatch checks that a hot device declines rounds and pauses training until it has cooled down, and that a warm
// device takes fewer local steps. The condition must be raised while the device declines rounds.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		celsius := 20.0
		rules := OwnerRules{Temperature: EaseStopBand{EaseThreshold: 60, StopThreshold: 80}}
		var barred wire.DeclineReason
		problem := "" // problem of the condition; empty if no condition is raised
		core := &part.AgentCore{Loop: host.NewEventLoop(nil),
			Observer: testkit.Observer(func(e observe.Event) {
				var d observe.EventDescription
				e.Describe(&d)
				if len(d.Conditions) != 1 || d.Conditions[0].Name != "device" {
					t.Fatalf("conditions %+v", d.Conditions)
				}
				problem = d.Conditions[0].Problem
			}),
			HandleRoundEvent: func(e agentround.Event) {
				if bars := e.(agentround.OwnerRuleChanged); bars.RuleName == "device" {
					barred = bars.Reason
				}
			}}
		w := NewRuleWatch(core, func(before RuleVerdict) RuleVerdict {
			return rules.JudgeReading(time.Now(), SystemReading{TemperatureCelsius: &celsius}, before)
		})
		for _, tt := range []struct {
			celsius float64
			reason  wire.DeclineReason
			share   float64 // allowed share of the local steps in a round that has begun
		}{{50, 0, 1}, {70, 0, 0.5}, {90, wire.DeclineHot, 1}, {70, wire.DeclineHot, 1}, {50, 0, 1}} {
			celsius = tt.celsius
			at, ok := w.Deadline()
			if wait := time.Until(at); !ok || wait > checkInterval {
				t.Fatalf("the next check is in %v", wait)
			}
			<-time.After(time.Until(at))
			w.Tick(time.Now())
			if rests := tt.reason != 0; barred != tt.reason || w.TrainingMustRest() != rests ||
				(problem != "") != rests {
				t.Errorf("at %v °C: declines with %v, rests: %v, condition %q", celsius, barred, w.TrainingMustRest(),
					problem)
			}
			if share := w.AllowedStepShare(); share != tt.share {
				t.Errorf("at %v °C: a share of %v of the local steps, want %v", celsius, share, tt.share)
			}
		}
	})
}

// TestFirstCheck checks that the rules are checked once when the agent starts, before any other event occurs.
func TestFirstCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := &part.AgentCore{Loop: host.NewEventLoop(nil), Observer: testkit.Observer(func(observe.Event) {}),
			HandleRoundEvent: func(agentround.Event) {}}
		checks := 0
		w := NewRuleWatch(core, func(before RuleVerdict) RuleVerdict {
			checks++
			return before
		})
		ctx, cancel := context.WithTimeout(t.Context(), checkInterval/2)
		defer cancel()
		core.Loop.AllowJobs(ctx)
		err := core.Loop.Run(ctx, nil, host.LoopHandlers{BeforeWait: func() error { return nil }, OnDeadline: w.Tick,
			NextDeadline: func() time.Time {
				next := part.EarliestDeadline{At: time.Now().Add(time.Hour), IsSet: true}
				next.Add(w.Deadline())
				return next.At
			}})
		if err != nil || checks != 1 {
			t.Errorf("%d checks, error %v", checks, err)
		}
	})
}
