package metrics

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/observe"
)

// EventMetrics keeps the metrics of a program from the samples in the descriptions of events. Several goroutines may
// use it at once.
type EventMetrics struct {
	now                func() time.Time
	registeredByMetric map[*observe.Metric]*registeredMetric
}

// registeredMetric is a registered metric. The vectors and the single series that are not of its kind are nil.
type registeredMetric struct {
	counters   *prometheus.CounterVec
	gauges     *prometheus.GaugeVec
	histograms *prometheus.HistogramVec

	// the series of a metric without labels that exists from the start
	counter  prometheus.Counter
	gauge    prometheus.Gauge
	observer prometheus.Observer

	mu               sync.Mutex      // of what follows, and of the series of a state set
	firstSkipped     bool            // of a metric with SkipsFirstAdd
	firstLabelValues map[string]bool // of a metric with MaxLabelValues
}

// NewEventMetrics registers metrics, with the series that exist from the start. now is the clock for timestamps.
func NewEventMetrics(r Registrar, now func() time.Time, lists ...[]*observe.Metric) *EventMetrics {
	e := &EventMetrics{now: now, registeredByMetric: map[*observe.Metric]*registeredMetric{}}
	for _, m := range slices.Concat(lists...) {
		k := &registeredMetric{}
		switch m.Kind {
		case observe.CounterKind:
			k.counters = r.Counters(m.Name, m.Help, m.LabelNames...)
		case observe.GaugeKind:
			k.gauges = r.Gauges(m.Name, m.Help, m.LabelNames...)
		case observe.HistogramKind:
			k.histograms = r.Histograms(m.Name, m.Help, m.BucketBounds, m.LabelNames...)
		}
		for _, labels := range m.InitialSeries {
			switch m.Kind {
			case observe.CounterKind:
				k.counter = k.counters.WithLabelValues(labels...)
			case observe.GaugeKind:
				k.gauge = k.gauges.WithLabelValues(labels...)
				k.gauge.Set(m.InitialValue)
			case observe.HistogramKind:
				k.observer = k.histograms.WithLabelValues(labels...)
			}
		}
		if len(m.LabelNames) > 0 {
			k.counter, k.gauge, k.observer = nil, nil, nil
		}
		if m.MaxLabelValues > 0 {
			k.firstLabelValues = map[string]bool{}
		}
		e.registeredByMetric[m] = k
	}
	return e
}

// Apply changes the metrics by the samples of an event. It ignores samples of metrics that are not registered: a test
// of each program wants all of them to be.
func (e *EventMetrics) Apply(samples []observe.MetricSample) {
	for i := range samples {
		s := &samples[i]
		if k := e.registeredByMetric[s.Metric]; k != nil {
			k.apply(s, e.now)
		}
	}
}

func (k *registeredMetric) apply(s *observe.MetricSample, now func() time.Time) {
	labels := s.LabelValues[:len(s.Metric.LabelNames)]
	if k.firstLabelValues != nil {
		labels = slices.Clone(labels)
		labels[0] = k.boundedLabelValue(labels[0], s.Metric.MaxLabelValues)
	}
	switch s.Operation {
	case observe.AddOperation:
		if s.Metric.SkipsFirstAdd && k.skipFirstSample() {
			return
		}
		if k.counter != nil {
			k.counter.Add(s.Value)
			return
		}
		k.counters.WithLabelValues(labels...).Add(s.Value)
	case observe.SetOperation:
		k.setGauge(s.Value, labels)
	case observe.SetNowOperation:
		k.setGauge(observe.UnixSeconds(now()), labels)
	case observe.ClearOperation:
		k.gauges.Reset()
	case observe.SelectOperation:
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, series := range s.Metric.InitialSeries {
			x := 0.0
			if series[0] == labels[0] {
				x = 1
			}
			k.gauges.WithLabelValues(series[0]).Set(x)
		}
	case observe.ObserveOperation:
		if k.observer != nil {
			k.observer.Observe(s.Value)
			return
		}
		k.histograms.WithLabelValues(labels...).Observe(s.Value)
	}
}

// setGauge sets a gauge. A gauge without series at the start loses the series if x is not finite: a NaN would spoil
// alerts and means over the fleet.
func (k *registeredMetric) setGauge(x float64, labels []string) {
	switch {
	case k.gauge != nil:
		k.gauge.Set(x)
	case math.IsNaN(x) || math.IsInf(x, 0):
		k.gauges.DeleteLabelValues(labels...)
	default:
		k.gauges.WithLabelValues(labels...).Set(x)
	}
}

// skipFirstSample reports whether this is its first call.
func (k *registeredMetric) skipFirstSample() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	first := !k.firstSkipped
	k.firstSkipped = true
	return first
}

// boundedLabelValue returns the label value for a name from outside the program.
func (k *registeredMetric) boundedLabelValue(name string, most int) string {
	name = SanitizeLabelValue(name)
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.firstLabelValues[name] {
		if len(k.firstLabelValues) >= most {
			return observe.OtherLabelValues
		}
		k.firstLabelValues[name] = true
	}
	return name
}
