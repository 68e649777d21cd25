package metrics

import (
	"fmt"
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// Registrar makes the metrics of one program. It panics where two have one
// name, as only a mistake in this package can make them.
type Registrar struct {
	Reg       prometheus.Registerer
	Namespace string // namespace
	Labels    prometheus.Labels
}

// Counter makes a counter that begins with 0.
func (r Registrar) Counter(name, help string) prometheus.Counter {
	return r.Counters(name, help).WithLabelValues()
}

// CounterByLabel makes one counter per value of a label.
func (r Registrar) CounterByLabel(name, help, label string, values []string) *prometheus.CounterVec {
	vec := r.Counters(name, help, label)
	for _, v := range values {
		vec.WithLabelValues(v)
	}
	return vec
}

// Counters makes a counter without series; the caller names the label values.
func (r Registrar) Counters(name, help string, labels ...string) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: r.Namespace, Name: name, Help: help,
		ConstLabels: r.Labels}, labels)
	r.Reg.MustRegister(vec)
	return vec
}

// Gauge makes a gauge whose value is known from the start, when it is 0.
func (r Registrar) Gauge(name, help string) prometheus.Gauge {
	return r.Gauges(name, help).WithLabelValues()
}

// GaugeByLabel makes one gauge per value of a label.
func (r Registrar) GaugeByLabel(name, help, label string, values []string) GaugeSet {
	s := GaugeSet{r.Gauges(name, help, label), values}
	for _, v := range values {
		s.WithLabelValues(v)
	}
	return s
}

// OptionalGauge makes a gauge that has no series until its value is known.
func (r Registrar) OptionalGauge(name, help string) OptionalGauge {
	return OptionalGauge{r.Gauges(name, help)}
}

// Gauges makes gauges with these labels, none of which exists yet.
func (r Registrar) Gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: r.Namespace, Name: name, Help: help,
		ConstLabels: r.Labels}, labels)
	r.Reg.MustRegister(vec)
	return vec
}

// Histogram makes a histogram.
func (r Registrar) Histogram(name, help string, buckets []float64) prometheus.Observer {
	return r.Histograms(name, help, buckets).WithLabelValues()
}

// HistogramByLabel makes one histogram per value of a label.
func (r Registrar) HistogramByLabel(name, help string, buckets []float64, label string,
	values []string) *prometheus.HistogramVec {
	vec := r.Histograms(name, help, buckets, label)
	for _, v := range values {
		vec.WithLabelValues(v)
	}
	return vec
}

// Histograms have classic buckets and, for scrapers that ask for them, native
// ones about 10 % wide.
func (r Registrar) Histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: r.Namespace, Name: name, Help: help, ConstLabels: r.Labels,
		Buckets: buckets, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
	}, labels)
	r.Reg.MustRegister(vec)
	return vec
}

// GaugeSet is a gauge with one label from a closed set.
type GaugeSet struct {
	*prometheus.GaugeVec
	Values []string
}

// SetActive sets the gauge of one value to 1 and all others to 0.
func (s GaugeSet) SetActive(value string) {
	for _, v := range s.Values {
		x := 0.0
		if v == value {
			x = 1
		}
		s.WithLabelValues(v).Set(x)
	}
}

// OptionalGauge is a gauge that may be without a value. It is a vector without
// labels, since only a vector's series can be taken away.
type OptionalGauge struct{ Vec *prometheus.GaugeVec }

// Set removes the series if x is not finite: a NaN would spoil alerts and means over the fleet.
func (m OptionalGauge) Set(x float64) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		m.Vec.Reset()
		return
	}
	m.Vec.WithLabelValues().Set(x)
}

// ToStrings spells out a closed set of names.
func ToStrings[T ~string](all []T) []string {
	s := make([]string, len(all))
	for i, v := range all {
		s[i] = string(v)
	}
	return s
}

// StringerNames spells out a closed set of numbers that have names.
func StringerNames[T fmt.Stringer](all []T) []string {
	s := make([]string, len(all))
	for i, v := range all {
		s[i] = v.String()
	}
	return s
}
