package metrics_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/metrics/agentmetrics"
)

// externalNames maps external names to their label values.
var externalNames = []struct{ name, want string }{
	{"temp", "temp"},
	{"", ""},
	{" ", " "},
	{"Temp (\xb0C)", `Temp (\xb0C)`}, // a name in Latin-1
	{`Temp (\xb0C)`, `Temp (\xb0C)`}, // a valid name that gives the same label value as the line above
	{"Temp (°C) 温度", "Temp (°C) 温度"},   // a name in UTF-8
	{"\xff\xfet\x00", `\xff\xfet\x00`}, // a name in UTF-16
	{"a\x00b", `a\x00b`},
	{"a\nb\r\tc\x1b[31m\x7f", `a\nb\r\tc\x1b[31m\x7f`},
	{`say "hi" \ 'ho'`, `say "hi" \ 'ho'`},
	{"\ufeffpm25", `\ufeffpm25`},
	{"left\u202eright\u2028", `left\u202eright\u2028`},
	{"\ufffd", "�"},
	{"\xed\xa0\x80", `\xed\xa0\x80`}, // half of a UTF-16 surrogate pair
	{"cut\xe2\x82", `cut\xe2\x82`},
	{"(others)", "(others)"},
	{`x",result="used"} 7`, `x",result="used"} 7`},
	{strings.Repeat("x", 128), strings.Repeat("x", 128)},
	{strings.Repeat("x", 129), strings.Repeat("x", 128) + "…"},
	{strings.Repeat("x", 10_000), strings.Repeat("x", 128) + "…"},
	{"x" + strings.Repeat("é", 5_000), "x" + strings.Repeat("é", 63) + "…"},
	{strings.Repeat("\xb0", 10_000), strings.Repeat(`\xb0`, 128) + "…"},
}

func TestLabelValue(t *testing.T) {
	for _, tt := range externalNames {
		if got := metrics.SanitizeLabelValue(tt.name); got != tt.want {
			t.Errorf("%.200q: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestExternalNames checks that inputs with any names can be counted. The counts of names with equal label values must
// be added up, and the scraped text must contain each label value unchanged.
func TestExternalNames(t *testing.T) {
	want := map[string]float64{}
	var first, second data.QualityReport
	for i, tt := range externalNames {
		n := uint64(1) << i
		first.Columns = append(first.Columns, data.ColumnReport{Name: tt.name, Used: n})
		second.Columns = append(second.Columns, data.ColumnReport{Name: tt.name, Used: 3 * n})
		want[tt.want] += float64(3 * n)
	}
	reg := metrics.NewRegistry("agentd")
	a := agentmetrics.New(reg, time.Now, "")
	apply(a.Events, taskdata.SourceReportReceived{QualityReport: first})
	apply(a.Events, taskdata.SourceReportReceived{QualityReport: second, PreviousReport: first})
	text := exposition(t, reg)
	if at := strings.IndexByte(text, 0); at >= 0 {
		t.Errorf("a NUL at %d, where Prometheus ends a scrape", at)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, m := range families["agentd_data_values_total"].Metric {
		labels := map[string]string{}
		for _, l := range m.Label {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["result"] == "used" {
			got[labels["input"]] = m.Counter.GetValue()
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d inputs, want %d", len(got), len(want))
	}
	for value, n := range want {
		if got[value] != n {
			t.Errorf("%.200q: %v values, want %v", value, got[value], n)
		}
	}
}

// TestExternalFederation checks that the metrics of a federation with any name can be registered.
func TestExternalFederation(t *testing.T) {
	for _, tt := range externalNames {
		reg := metrics.NewRegistry("agentd")
		agentmetrics.New(reg, time.Now, tt.name)
		exposition(t, reg)
	}
}
