package agent_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/presence"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// TestReports checks that the agent sends a metric report soon after the first announcement, which contains the key for
// encrypting the report, and then once per interval. It must send no report while disconnected, and an unstable
// connection must cause no additional reports.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		calls := 0.
		s.cfg.Presence.Software = "agentd 1"
		s.cfg.Presence.MetricsReports = presence.MetricsReportConfig{ReportInterval: 5 * time.Minute,
			MetricsAddress: "192.0.2.7:9465",
			ReadMetrics: func() []wire.ReportMetric {
				calls++
				return []wire.ReportMetric{{ID: 3, Value: calls}}
			}}
		s.start()
		wait(time.Hour)
		s.announce(4, s.training(taskOf("a task"), 0, 0))
		if n := len(s.heard(wire.TypeMetricsReport)); n != 0 {
			t.Errorf("%d reports before, or at once: all agents would send theirs together", n)
		}
		wait(time.Minute)
		for range 3 {
			s.tell(mqtt.LinkDown{})
			s.tell(mqtt.LinkUp{})
		}
		wait(10 * time.Minute)
		all := s.heard(wire.TypeMetricsReport)
		if len(all) != 3 {
			t.Fatalf("%d reports in 11 minutes, want 3", len(all))
		}
		m, err := wire.DecodeAgentMetricsReport(all[2].Body)
		if err != nil || m.IntervalSeconds != 300 || m.SoftwareVersion != "agentd 1" ||
			m.ScrapeAddress != "192.0.2.7:9465" ||
			len(m.Metrics) != 1 || m.Metrics[0].Value != 3 {
			t.Errorf("the third report is %+v, error %v", m, err)
		}
		s.tell(mqtt.LinkDown{})
		wait(time.Hour)
		if n := len(s.heard(wire.TypeMetricsReport)); n != 3 {
			t.Errorf("%d reports without a link", n-3)
		}
		s.tell(mqtt.LinkUp{})
		wait(time.Minute)
		if n := len(s.heard(wire.TypeMetricsReport)); n != 4 {
			t.Errorf("%d reports in the minute after the link came back, want 1", n-3)
		}
	})
}

// TestReportsEndWithTheBudget checks that no report is sent after the monthly budget is spent.
func TestReportsEndWithTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		budgeted(s, 1000)
		s.cfg.Presence.MetricsReports = presence.MetricsReportConfig{ReportInterval: time.Minute,
			ReadMetrics: func() []wire.ReportMetric { return nil }}
		s.start()
		s.spend(2000)
		wait(time.Hour)
		if n := len(s.heard(wire.TypeMetricsReport)); n != 0 {
			t.Errorf("%d reports on an empty budget", n)
		}
	})
}
