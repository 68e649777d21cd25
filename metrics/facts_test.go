package metrics_test

import (
	"path"
	"reflect"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/surface"
)

// unhandled lists the facts that deliberately change no metric, each with the
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

// TestEveryFactIsHandled reads the fact types from their sources and wants
// each in a story, unless it is deliberately unhandled.
func TestEveryFactIsHandled(t *testing.T) {
	told := map[string]bool{}
	for _, p := range programs {
		for _, fact := range p.script {
			told[reflect.TypeOf(fact).String()] = true
		}
	}
	declared := map[string]bool{}
	for _, pkg := range []string{"round", "agent", "coordinator", "coordinator/enrol", "coordinator/replica", "host"} {
		for _, name := range surface.EventTypes(t, "../"+pkg) {
			fact := path.Base(pkg) + "." + name
			declared[fact] = true
			if reason, skip := unhandled[fact]; skip == told[fact] {
				t.Errorf("fact %s: in a story: %v, unhandled because %q; handle it in Observe and add it to "+
					"scripts_test.go, or give a reason in unhandled",
					fact, told[fact], reason)
			}
		}
	}
	for fact := range unhandled {
		if !declared[fact] {
			t.Errorf("unhandled lists %s, which is no fact", fact)
		}
	}
	if len(declared) < 20 {
		t.Errorf("found only %d facts: were they moved to other files?", len(declared))
	}
}

// TestEveryFactChangesAMetric plays the stories fact by fact.
func TestEveryFactChangesAMetric(t *testing.T) {
	for _, p := range programs {
		reg, o := p.start()
		before := exposition(t, reg)
		for i, fact := range p.script {
			o.tell(fact)
			after := exposition(t, reg)
			if after == before {
				t.Errorf("%s: fact %d of the story, %T, changes nothing", p.name, i, fact)
			}
			before = after
		}
	}
}
