package metrics

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/observe"
)

// EventMetrics maintains the metrics of a program from the samples in event descriptions. It is safe for concurrent
// use.
type EventMetrics struct {
	now                func() time.Time
	registeredByMetric map[*observe.Metric]*registeredMetric
}

// registeredMetric contains the Prometheus objects of one metric. Fields for other kinds of metrics are nil.
type registeredMetric struct {
	counters   *prometheus.CounterVec
	gauges     *prometheus.GaugeVec
	histograms *prometheus.HistogramVec

	// The fields below are the single series of a metric without labels, which exists from the start.
	unlabeledCounter   prometheus.Counter
	unlabeledGauge     prometheus.Gauge
	unlabeledHistogram prometheus.Observer

	mu                   sync.Mutex // protects the fields below, and makes SelectOperation atomic
	isFirstSampleSkipped bool
	keptLabelValues      map[string]bool // label values with their own series, limited by MaxLabelValues
}

// NewEventMetrics registers the metrics in lists and creates their initial series. now returns the time for timestamps.
func NewEventMetrics(r Registrar, now func() time.Time, lists ...[]*observe.Metric) *EventMetrics {
	e := &EventMetrics{now: now, registeredByMetric: map[*observe.Metric]*registeredMetric{}}
	for _, m := range slices.Concat(lists...) {
		k := &registeredMetric{}
		switch m.Kind {
		case observe.CounterKind:
			k.counters = r.NewCounterVec(m.Name, m.Help, m.LabelNames...)
		case observe.GaugeKind:
			k.gauges = r.NewGaugeVec(m.Name, m.Help, m.LabelNames...)
		case observe.HistogramKind:
			k.histograms = r.NewHistogramVec(m.Name, m.Help, m.BucketBounds, m.LabelNames...)
		}
		for _, labels := range m.InitialSeries {
			switch m.Kind {
			case observe.CounterKind:
				k.unlabeledCounter = k.counters.WithLabelValues(labels...)
			case observe.GaugeKind:
				k.unlabeledGauge = k.gauges.WithLabelValues(labels...)
				k.unlabeledGauge.Set(m.InitialValue)
			case observe.HistogramKind:
				k.unlabeledHistogram = k.histograms.WithLabelValues(labels...)
			}
		}
		if len(m.LabelNames) > 0 {
			k.unlabeledCounter, k.unlabeledGauge, k.unlabeledHistogram = nil, nil, nil
		}
		if m.MaxLabelValues > 0 {
			k.keptLabelValues = map[string]bool{}
		}
		e.registeredByMetric[m] = k
	}
	return e
}

// ApplySamples updates the metrics with the samples of an event. It ignores samples of unregistered metrics; a test of
// each program checks that all metrics are registered.
func (e *EventMetrics) ApplySamples(samples []observe.MetricSample) {
	for i := range samples {
		s := &samples[i]
		if k := e.registeredByMetric[s.Metric]; k != nil {
			k.applySample(s, e.now)
		}
	}
}

func (k *registeredMetric) applySample(s *observe.MetricSample, now func() time.Time) {
	labels := s.LabelValues[:len(s.Metric.LabelNames)]
	if k.keptLabelValues != nil {
		labels = slices.Clone(labels)
		labels[0] = k.boundedLabelValue(labels[0], s.Metric.MaxLabelValues)
	}
	switch s.Operation {
	case observe.AddOperation:
		if s.Metric.SkipsFirstAdd && k.isFirstSample() {
			return
		}
		if k.unlabeledCounter != nil {
			k.unlabeledCounter.Add(s.Value)
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
		if k.unlabeledHistogram != nil {
			k.unlabeledHistogram.Observe(s.Value)
			return
		}
		k.histograms.WithLabelValues(labels...).Observe(s.Value)
	}
}

// setGauge sets a gauge to x. If x is not finite and the gauge has no initial series, setGauge removes the series of
// the gauge, because NaN would disturb alerts and means over all agents.
func (k *registeredMetric) setGauge(x float64, labels []string) {
	switch {
	case k.unlabeledGauge != nil:
		k.unlabeledGauge.Set(x)
	case math.IsNaN(x) || math.IsInf(x, 0):
		k.gauges.DeleteLabelValues(labels...)
	default:
		k.gauges.WithLabelValues(labels...).Set(x)
	}
}

// isFirstSample reports whether it is called for the first time.
func (k *registeredMetric) isFirstSample() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	first := !k.isFirstSampleSkipped
	k.isFirstSampleSkipped = true
	return first
}

// boundedLabelValue returns the label value for an external name. It returns OtherLabelValues for a new name if the
// metric already has the maximum number (most) of label values.
func (k *registeredMetric) boundedLabelValue(name string, most int) string {
	name = SanitizeLabelValue(name)
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.keptLabelValues[name] {
		if len(k.keptLabelValues) >= most {
			return observe.OtherLabelValues
		}
		k.keptLabelValues[name] = true
	}
	return name
}
