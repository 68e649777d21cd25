package metrics_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/metrics/agentmetrics"
)

// TestCollected checks that the agents of one process share its metrics, and that the values of the agents are added
// up.
func TestCollected(t *testing.T) {
	reg := metrics.NewRegistry("agentd")
	a := agentmetrics.New(reg, time.Now, "")
	first := data.QualityReport{Columns: []data.ColumnReport{
		{Name: "pm25", Used: 40, NewestTime: 1772366400e9, Unused: map[data.UnusedReason]uint64{grid.ReasonMissing: 2}},
		{Name: "temp", Used: 2, NewestTime: 1772366300e9}, {Name: "door"}},
		Troubles: []data.SourceTrouble{{Kind: data.TroubleSilent}, {Kind: data.TroubleSilent},
			{Kind: data.TroubleBroker}}}
	second := data.QualityReport{LargestWrongShare: 0.25, Columns: []data.ColumnReport{
		{Name: "pm25", Used: 45, NewestTime: 1772366460e9, Unused: map[data.UnusedReason]uint64{grid.ReasonMissing: 3}},
		{Name: "temp", Used: 2, NewestTime: 1772366300e9}},
		Troubles: []data.SourceTrouble{{Kind: data.TroubleBroker}, {Kind: data.TroubleOutlier},
			{Kind: data.TroubleOutlier}}}
	apply(a.Events, taskdata.SourceReportReceived{QualityReport: first})
	apply(a.Events, taskdata.SourceReportReceived{QualityReport: first})
	apply(a.Events, taskdata.SourceReportReceived{QualityReport: second, PreviousReport: first})
	text := exposition(t, reg)
	for _, want := range []string{`agentd_data_values_total{input="pm25",result="used"} 85`,
		`agentd_data_values_total{input="temp",result="used"} 4`,
		`agentd_data_values_total{input="pm25",result="missing"} 5`,
		`agentd_data_values_total{input="door",result="future"} 0`,
		`agentd_data_troubles{kind="broker"} 1`, `agentd_data_troubles{kind="silent"} 0`,
		`agentd_data_doubts{kind="outlier"} 2`, `agentd_data_doubts{kind="unused"} 0`,
		`agentd_data_unusable_ratio 0.25`,
		`agentd_data_newest_timestamp_seconds 1.7723663e+09`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// TestInputsAreBounded checks that a file with thousands of columns does not create thousands of series.
func TestInputsAreBounded(t *testing.T) {
	reg := metrics.NewRegistry("agentd")
	a := agentmetrics.New(reg, time.Now, "")
	var wide data.QualityReport
	for i := range 5000 {
		wide.Columns = append(wide.Columns, data.ColumnReport{Name: fmt.Sprint("x", i), Used: 2})
	}
	for range 2 {
		apply(a.Events, taskdata.SourceReportReceived{QualityReport: wide})
	}
	text := exposition(t, reg)
	if n := strings.Count(text, "agentd_data_values_total{"); n != 65*(len(data.UnusedReasons())+1) {
		t.Errorf("%d series", n)
	}
	for _, want := range []string{`{input="x63",result="used"} 4`, `{input="(others)",result="used"} 19744`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}
