package wire_test

import (
	"slices"
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

// TestUnhealthyInputs checks that the inputs of a report must be in ascending order, and that healthy inputs are
// omitted.
func TestUnhealthyInputs(t *testing.T) {
	for _, tt := range []struct {
		inputs []wire.UnhealthyInput
		says   string
	}{
		{[]wire.UnhealthyInput{{"a", 1, 0, 0}, {"b", 0, 65535, 0}, {"c", 0, 0, 2}}, ""},
		{[]wire.UnhealthyInput{{"b", 1, 0, 0}, {"a", 1, 0, 0}}, "must be in ascending order"},
		{[]wire.UnhealthyInput{{"a", 1, 0, 0}, {"a", 1, 0, 0}}, "must be in ascending order"},
		{[]wire.UnhealthyInput{{Name: "a"}}, `input "a" has no unused values`},
	} {
		m := wire.AgentMetricsReport{UnhealthyInputs: tt.inputs}
		got, err := wire.DecodeAgentMetricsReport(m.Body())
		if tt.says == "" && (err != nil || !slices.Equal(got.UnhealthyInputs, tt.inputs)) ||
			tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("inputs %v: %v, error %v", tt.inputs, got.UnhealthyInputs, err)
		}
	}
}
