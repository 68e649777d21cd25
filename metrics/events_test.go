package metrics_test

import (
	"path"
	"reflect"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/coordinator/replica"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/testkit/surface"
	"github.com/fedmesh/fedmesh/metrics/coordinatormetrics"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
)

// unhandled lists the events that deliberately change no metric, each with the
// reason.
var unhandled = map[string]string{
	"coordinator.AgentRejected": "the message that it answers is counted among those that are not used",
	"agent.AnnouncementMissing": "nothing arrives, so nothing is counted; readiness, log and status have it",
	"agent.ClockBehind": "no alarm: the device goes on, by a time that is good enough; log and " +
		"status have it",
	"agent.Evaluated":                  "the coordinator tells what all have found; the log has it",
	"agent.CertificateEnding":          "the time at which it ends is a metric",
	"agent.ExternalTrainerStarted":     "nothing is wrong; the log and the status have it",
	"agent.PersonalModelReset":         "nothing is wrong: a new run begins so; the log has it",
	"agent.Rekeyed":                    "a person has asked for it; the log has it",
	"agent.RenewalRefused":             "the log has it, and the coordinator counts it",
	"agent.RootDocumentAdopted":        "a person has given out the document; the log has it",
	"coordinator.RepeatedLargeUpdates": "most such devices are honest; the log and the status name them",
	"coordinator.MessageAccepted": "one device's times are no metric of the fleet; the machine tells who comes and " +
		"leaves",
	"round.EdgesRestored":      "the edges that the coordinator ends are counted",
	"round.MessageUnsupported": "the agent declines as unsupported, or says hello as unfit: both are counted",
}

// TestEveryEventIsHandled reads the event types from their sources and wants
// each in a story, unless it is deliberately unhandled.
func TestEveryEventIsHandled(t *testing.T) {
	told := map[string]bool{}
	for _, p := range programs {
		for _, event := range p.script {
			told[reflect.TypeOf(event).String()] = true
		}
	}
	declared := map[string]bool{}
	for _, pkg := range []string{"round", "agent", "coordinator", "coordinator/enrol", "coordinator/replica", "host"} {
		for _, name := range surface.EventTypes(t, "../"+pkg) {
			event := path.Base(pkg) + "." + name
			declared[event] = true
			if reason, skip := unhandled[event]; skip == told[event] {
				t.Errorf("event %s: in a story: %v, unhandled because %q; describe a metric and add it to "+
					"scripts_test.go, or give a reason in unhandled",
					event, told[event], reason)
			}
		}
	}
	for event := range unhandled {
		if !declared[event] {
			t.Errorf("unhandled lists %s, which is no event", event)
		}
	}
	if len(declared) < 20 {
		t.Errorf("found only %d events: were they moved to other files?", len(declared))
	}
}

// TestEveryEventChangesAMetric plays the stories event by event.
func TestEveryEventChangesAMetric(t *testing.T) {
	for _, p := range programs {
		reg, o := p.start()
		before := exposition(t, reg)
		for i, event := range p.script {
			o.tell(event)
			after := exposition(t, reg)
			if after == before {
				t.Errorf("%s: event %d of the story, %T, changes nothing", p.name, i, event)
			}
			before = after
		}
	}
}

// TestMetricsAreListed wants each metric that an event of a story changes to be in the list of its package.
func TestMetricsAreListed(t *testing.T) {
	listed := map[*observe.Metric]bool{}
	for _, m := range slices.Concat(host.Metrics, agent.Metrics, round.AgentMetrics, coordinator.Metrics,
		round.CoordinatorMetrics, enrol.Metrics, replica.Metrics, []*observe.Metric{coordinatormetrics.MLflowOK}) {
		listed[m] = true
	}
	for _, p := range programs {
		for _, event := range p.script {
			var d observe.Description
			event.Describe(&d)
			for _, s := range d.Samples {
				if !listed[s.Metric] {
					t.Errorf("%T changes %s, which is in no list Metrics", event, s.Metric.Name)
				}
			}
		}
	}
}
