package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Registrar creates and registers the metrics of one program. It panics if two metrics have the same name, which is a
// programming error.
type Registrar struct {
	Reg         prometheus.Registerer
	Namespace   string // prefix of all metric names
	ConstLabels prometheus.Labels
}

// NewCounter returns a counter with the initial value 0.
func (r Registrar) NewCounter(name, help string) prometheus.Counter {
	return r.NewCounterVec(name, help).WithLabelValues()
}

// NewCounterVec returns a counter vector without series. The caller creates the series.
func (r Registrar) NewCounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: r.Namespace, Name: name, Help: help,
		ConstLabels: r.ConstLabels}, labels)
	r.Reg.MustRegister(vec)
	return vec
}

// NewGauge returns a gauge with the initial value 0.
func (r Registrar) NewGauge(name, help string) prometheus.Gauge {
	return r.NewGaugeVec(name, help).WithLabelValues()
}

// NewGaugeVec returns a gauge vector without series.
func (r Registrar) NewGaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: r.Namespace, Name: name, Help: help,
		ConstLabels: r.ConstLabels}, labels)
	r.Reg.MustRegister(vec)
	return vec
}

// NewHistogramVec returns a histogram vector with classic buckets and native buckets about 10 % wide.
func (r Registrar) NewHistogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: r.Namespace, Name: name, Help: help, ConstLabels: r.ConstLabels,
		Buckets: buckets, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
	}, labels)
	r.Reg.MustRegister(vec)
	return vec
}
