package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Registrar makes the metrics of one program. It panics where two have one
// name, as only a mistake in this package can make them.
type Registrar struct {
	Reg         prometheus.Registerer
	Namespace   string // namespace
	ConstLabels prometheus.Labels
}

// NewCounter makes a counter that begins with 0.
func (r Registrar) NewCounter(name, help string) prometheus.Counter {
	return r.NewCounterVec(name, help).WithLabelValues()
}

// NewCounterVec makes a counter without series; the caller names the label values.
func (r Registrar) NewCounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: r.Namespace, Name: name, Help: help,
		ConstLabels: r.ConstLabels}, labels)
	r.Reg.MustRegister(vec)
	return vec
}

// NewGauge makes a gauge whose value is known from the start, when it is 0.
func (r Registrar) NewGauge(name, help string) prometheus.Gauge {
	return r.NewGaugeVec(name, help).WithLabelValues()
}

// NewGaugeVec makes gauges with these labels, none of which exists yet.
func (r Registrar) NewGaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: r.Namespace, Name: name, Help: help,
		ConstLabels: r.ConstLabels}, labels)
	r.Reg.MustRegister(vec)
	return vec
}

// NewHistogramVec have classic buckets and, for scrapers that ask for them, native
// ones about 10 % wide.
func (r Registrar) NewHistogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: r.Namespace, Name: name, Help: help, ConstLabels: r.ConstLabels,
		Buckets: buckets, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
	}, labels)
	r.Reg.MustRegister(vec)
	return vec
}
