package agentd

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/metrics"
)

// TestAgentMetricsAreShared updates the metrics from several agents of one process concurrently, so that the race
// detector checks them.
func TestAgentMetricsAreShared(t *testing.T) {
	reg := metrics.NewRegistry("agentd")
	m := NewMetrics(reg, "")
	board := status.NewBoard(time.Now, nil)
	var all sync.WaitGroup
	for range 4 {
		reader := &daemon.EventDispatcher{Log: slog.New(slog.DiscardHandler), Metrics: m.agentMetrics.Events,
			Board: board}
		all.Go(func() {
			for range 100 {
				reader.Observe(host.BrokerLinkChanged{IsConnected: true})
			}
		})
	}
	all.Wait()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "agentd_broker_reconnects_total" {
			if got := f.GetMetric()[0].GetCounter().GetValue(); got != 399 {
				t.Errorf("%v reconnects, want 399", got)
			}
			return
		}
	}
	t.Error("no agentd_broker_reconnects_total")
}
