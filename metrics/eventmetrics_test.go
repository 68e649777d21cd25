package metrics_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/observe"
)

// TestEventMetrics applies event descriptions to one metric of each kind and compares its series.
func TestEventMetrics(t *testing.T) {
	counter := observe.CounterByLabel("joins_total", "h", "result", []string{"ok", "refused"})
	again := &observe.Metric{Name: "again_total", Help: "h", InitialSeries: observe.UnlabeledSeries,
		SkipsFirstAdd: true}
	ok := &observe.Metric{Name: "ok", Help: "h", Kind: observe.GaugeKind, InitialSeries: observe.UnlabeledSeries,
		InitialValue: 1}
	risk := observe.OptionalGauge("risk", "h")
	byAgent := observe.OptionalGauge("by_stat", "h", "stat")
	phase := observe.GaugeByLabel("phase", "h", "phase", []string{"idle", "open"})
	took := observe.Histogram("took_seconds", "h", []float64{1, 10})
	values := &observe.Metric{Name: "values_total", Help: "h", LabelNames: []string{"input", "result"},
		MaxLabelValues: 2}
	at := observe.OptionalGauge("last_timestamp_seconds", "h")
	reg := prometheus.NewPedanticRegistry()
	m := metrics.NewEventMetrics(metrics.Registrar{Reg: reg, Namespace: "a"}, clock,
		[]*observe.Metric{counter, again, ok, risk, byAgent, phase}, []*observe.Metric{took, values, at})
	for _, tt := range []struct {
		what   string
		event  func(d *observe.EventDescription)
		series string
		want   string // expected value; "" means that the series does not exist
	}{
		{"a series before the first event", func(*observe.EventDescription) {}, `a_joins_total{result="refused"}`, "0"},
		{"an initial value", func(*observe.EventDescription) {}, "a_ok", "1"},
		{"an optional gauge before its first value", func(*observe.EventDescription) {}, "a_risk", ""},
		{"a labelled counter", func(d *observe.EventDescription) {
			d.IncCounter(counter, "ok")
			d.AddToCounter(counter,
				2, "ok")
		},
			`a_joins_total{result="ok"}`, "3"},
		{"the first is not counted", func(d *observe.EventDescription) { d.IncCounter(again) }, "a_again_total", "0"},
		{"the second is", func(d *observe.EventDescription) { d.IncCounter(again) }, "a_again_total", "1"},
		{"a boolean", func(d *observe.EventDescription) { d.SetBoolGauge(ok, false) }, "a_ok", "0"},
		{"an optional gauge", func(d *observe.EventDescription) { d.SetGauge(risk, 0.5) }, "a_risk", "0.5"},
		{"a value that is not finite", func(d *observe.EventDescription) { d.SetGauge(risk, math.NaN()) }, "a_risk",
			""},
		{"a label", func(d *observe.EventDescription) { d.SetGauge(byAgent, 2, "worst") }, `a_by_stat{stat="worst"}`, "2"},
		{"cleared", func(d *observe.EventDescription) { d.ClearGauge(byAgent); d.SetGauge(byAgent, 1, "mean") },
			`a_by_stat{stat="worst"}`, ""},
		{"a state", func(d *observe.EventDescription) { d.SelectGaugeState(phase, "open") }, `a_phase{phase="open"}`, "1"},
		{"the next state", func(d *observe.EventDescription) { d.SelectGaugeState(phase, "idle") }, `a_phase{phase="open"}`, "0"},
		{"a histogram", func(d *observe.EventDescription) { d.ObserveHistogram(took, 5) }, `a_took_seconds_bucket{le="10"}`, "1"},
		{"two names from outside", func(d *observe.EventDescription) {
			d.IncCounter(values, "x", "used")
			d.IncCounter(values, "y", "used")
			d.IncCounter(values, "x", "used")
		}, `a_values_total{input="x",result="used"}`, "2"},
		{"further names", func(d *observe.EventDescription) {
			d.IncCounter(values, "z", "used")
			d.IncCounter(values, "w", "used")
		},
			`a_values_total{input="(others)",result="used"}`, "2"},
		{"the present time", func(d *observe.EventDescription) { d.SetGaugeToNow(at) }, "a_last_timestamp_seconds",
			fmt.Sprint(observe.UnixSeconds(clock()))},
		{"a metric that is not registered", func(d *observe.EventDescription) {
			d.IncCounter(observe.Counter("other",
				"h"))
		},
			"a_other", ""},
	} {
		var d observe.EventDescription
		tt.event(&d)
		m.ApplySamples(d.MetricSamples)
		if got := seriesOf(t, reg)[tt.series]; got != tt.want {
			t.Errorf("%s: %s is %q, want %q", tt.what, tt.series, got, tt.want)
		}
	}
}
