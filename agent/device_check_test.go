package agent_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/device"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/learner"
)

// heated configures the scene's agent to stop work at 80 °C, and returns a function that sets the device's temperature.
func heated(s *scene) (set func(celsius float64)) {
	var now atomic.Pointer[float64]
	set = func(celsius float64) { now.Store(&celsius) }
	set(20)
	rules := device.OwnerRules{Temperature: device.EaseStopBand{EaseThreshold: 60, StopThreshold: 80}}
	s.cfg.JudgeDevice = func(before device.RuleVerdict) device.RuleVerdict {
		return rules.JudgeReading(time.Now(), device.SystemReading{TemperatureCelsius: now.Load()}, before)
	}
	return set
}

// TestHotDeviceDeclines checks that a hot device declines rounds before it is invited, and that it reports without a
// request when it has cooled down.
func TestHotDeviceDeclines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		set := heated(s)
		s.start()
		gathering := s.training(taskOf("one"), 1, 2)
		s.announce(1, gathering)
		wait(10 * time.Second)
		if s.unfit() != "fit" {
			t.Errorf("a cool device is %s", s.unfit())
		}
		set(90)
		wait(time.Minute)
		if s.unfit() != "hot" {
			t.Errorf("the hello of a hot device says %s", s.unfit())
		}
		s.invite(2, s.announce(2, s.training(taskOf("one"), 1, 3)))
		if d := s.declined(); d != "hot" {
			t.Errorf("declined with %q", d)
		}
		set(70) // The device is not cool enough yet.
		wait(time.Minute)
		if s.unfit() != "hot" {
			t.Errorf("a device that was hot and is warm is %s", s.unfit())
		}
		s.announce(3, s.training(taskOf("one"), 1, 4))
		set(50)
		wait(time.Minute)
		if s.unfit() != "fit" {
			t.Errorf("the hello of a device that has cooled says %s", s.unfit())
		}
	})
}

// TestWarmDeviceTakesFewerSteps checks that a warm device takes fewer local training steps and reports the reason.
func TestWarmDeviceTakesFewerSteps(t *testing.T) {
	steps := func(celsius float64) (int, learner.StepCountReason) {
		var last training.LocalTrainingFinished
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			s.cfg.Training.DeclaredStepTime = 100 * time.Millisecond
			heated(s)(celsius)
			s.start()
			s.invite(1, s.announce(1, s.training(taskOf("one"), 1, 2)))
			wait(time.Minute)
			all := eventsOf[training.LocalTrainingFinished](s)
			if len(all) != 1 {
				t.Fatalf("trained %d times", len(all))
			}
			last = all[0]
		})
		return last.LocalSteps, last.StepCountReason
	}
	all, why := steps(50)
	if why == learner.StepCountReduced {
		t.Errorf("a cool device takes %d steps, eased", all)
	}
	few, why := steps(70)
	if few != all/2 || why != learner.StepCountReduced {
		t.Errorf("a device half way to too hot takes %d steps (%v), want half of %d, eased", few, why, all)
	}
}
