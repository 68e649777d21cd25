package wire_test

import (
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// TestReadingsAscend checks that the metrics in a report must be in ascending order, so that each report has a unique
// encoding and contains no metric twice.
func TestReadingsAscend(t *testing.T) {
	for _, ids := range [][]uint8{{3, 3}, {4, 3}, {1, 2, 1}} {
		var m wire.AgentMetricsReport
		for _, id := range ids {
			m.Metrics = append(m.Metrics, wire.ReportMetric{ID: id})
		}
		if _, err := wire.DecodeAgentMetricsReport(m.Body()); err == nil || !strings.Contains(err.Error(),
			"must be in ascending order") {
			t.Errorf("readings %v: error %v", ids, err)
		}
	}
}
