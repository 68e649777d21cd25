package metrics_test

import (
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/external"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/coordinator/replica"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/metrics/coordinatormetrics"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
)

// TestEveryEventChangesAMetric checks that every event in the test scripts changes at least one metric.
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

// TestMetricsAreListed checks that each metric changed by an event of a script is in the list of its package, and that
// each listed metric is changed by an event.
func TestMetricsAreListed(t *testing.T) {
	listed, changed := map[*observe.Metric]bool{}, map[*observe.Metric]bool{}
	for _, m := range slices.Concat(host.Metrics, agent.Metrics, external.Metrics, agentround.Metrics,
		coordinator.Metrics,
		round.CoordinatorMetrics, enrol.Metrics, replica.Metrics, []*observe.Metric{coordinatormetrics.MLflowOK}) {
		listed[m] = true
	}
	for _, p := range programs {
		for _, event := range p.script {
			var d observe.EventDescription
			event.Describe(&d)
			for _, s := range d.MetricSamples {
				if changed[s.Metric] = true; !listed[s.Metric] {
					t.Errorf("%T changes %s, which is in no list Metrics", event, s.Metric.Name)
				}
			}
		}
	}
	for m := range listed {
		if !changed[m] {
			t.Errorf("no event of a story in scripts_test.go changes %s", m.Name)
		}
	}
}
