package coordinator_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/presence"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// TestReportsAreHeard checks that a duplicated or replayed metrics report is dropped, so that counters are not added
// twice.
func TestReportsAreHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 1, memory.Options{})
		p := f.agents[0]
		p.cfg.Presence.MetricsReports = presence.MetricsReportConfig{ReportInterval: time.Minute,
			ReadMetrics: func() []wire.ReportMetric { return []wire.ReportMetric{{ID: 13, Value: 2}} }}
		var again []mqtt.Message
		p.moment = func(x any) {
			if m, ok := x.(mqtt.Message); ok {
				if e, err := f.reveal(m); err == nil && e.Type == wire.TypeMetricsReport {
					again = append(again, m)
				}
			}
		}
		f.start()
		f.finished(time.Hour)
		wait(5 * time.Minute)
		p.stop()
		old := f.connect(f.topics.ClientID(p.id), nil)
		for _, m := range again {
			if err := old.Publish(m); err != nil {
				t.Error(err)
			}
		}
		wait(time.Minute)
		told := events[coordinator.AgentReportReceived](f)
		if len(told) < 5 || len(told) != len(again) {
			t.Errorf("%d of %d reports were told", len(told), len(again))
		}
		for _, r := range told {
			if r.Agent != p.id || r.BootEpoch != 1 || r.Report.IntervalSeconds != 60 || len(r.Report.Metrics) != 1 {
				t.Errorf("told %+v", r)
			}
		}
		if err := old.Close(); err != nil {
			t.Error(err)
		}
	})
}
