package metrics

import (
	"fmt"
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// registrar makes the metrics of one program. It panics where two have one
// name, as only a mistake in this package can make them.
type registrar struct {
	reg     prometheus.Registerer
	program string // namespace
	labels  prometheus.Labels
}

// counter makes a counter that begins with 0.
func (r registrar) counter(name, help string) prometheus.Counter {
	return r.counters(name, help).WithLabelValues()
}

// counterBy makes one counter per value of a label.
func (r registrar) counterBy(name, help, label string, values []string) *prometheus.CounterVec {
	vec := r.counters(name, help, label)
	for _, v := range values {
		vec.WithLabelValues(v)
	}
	return vec
}

// counters makes a counter without series; the caller names the label values.
func (r registrar) counters(name, help string, labels ...string) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: r.program, Name: name, Help: help,
		ConstLabels: r.labels}, labels)
	r.reg.MustRegister(vec)
	return vec
}

// gauge makes a gauge whose value is known from the start, when it is 0.
func (r registrar) gauge(name, help string) prometheus.Gauge {
	return r.gauges(name, help).WithLabelValues()
}

// gaugeBy makes one gauge per value of a label.
func (r registrar) gaugeBy(name, help, label string, values []string) gaugeSet {
	s := gaugeSet{r.gauges(name, help, label), values}
	for _, v := range values {
		s.WithLabelValues(v)
	}
	return s
}

// measure makes a gauge that has no series until its value is known.
func (r registrar) measure(name, help string) measure {
	return measure{r.gauges(name, help)}
}

func (r registrar) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: r.program, Name: name, Help: help,
		ConstLabels: r.labels}, labels)
	r.reg.MustRegister(vec)
	return vec
}

// histogram makes a histogram.
func (r registrar) histogram(name, help string, buckets []float64) prometheus.Observer {
	return r.histograms(name, help, buckets).WithLabelValues()
}

// histogramBy makes one histogram per value of a label.
func (r registrar) histogramBy(name, help string, buckets []float64, label string,
	values []string) *prometheus.HistogramVec {
	vec := r.histograms(name, help, buckets, label)
	for _, v := range values {
		vec.WithLabelValues(v)
	}
	return vec
}

// histograms have classic buckets and, for scrapers that ask for them, native
// ones about 10 % wide.
func (r registrar) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: r.program, Name: name, Help: help, ConstLabels: r.labels,
		Buckets: buckets, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
	}, labels)
	r.reg.MustRegister(vec)
	return vec
}

// gaugeSet is a gauge with one label from a closed set.
type gaugeSet struct {
	*prometheus.GaugeVec
	values []string
}

// choose sets the gauge of one value to 1 and all others to 0.
func (s gaugeSet) choose(value string) {
	for _, v := range s.values {
		x := 0.0
		if v == value {
			x = 1
		}
		s.WithLabelValues(v).Set(x)
	}
}

// measure is a gauge that may be without a value. It is a vector without
// labels, since only a vector's series can be taken away.
type measure struct{ vec *prometheus.GaugeVec }

// set removes the series if x is not finite: a NaN would spoil alerts and means over the fleet.
func (m measure) set(x float64) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		m.vec.Reset()
		return
	}
	m.vec.WithLabelValues().Set(x)
}

// words spells out a closed set of names.
func words[T ~string](all []T) []string {
	s := make([]string, len(all))
	for i, v := range all {
		s[i] = string(v)
	}
	return s
}

// names spells out a closed set of numbers that have names.
func names[T fmt.Stringer](all []T) []string {
	s := make([]string, len(all))
	for i, v := range all {
		s[i] = v.String()
	}
	return s
}
