package observe

import "fmt"

// MetricKind is the type of a metric: counter, gauge or histogram.
type MetricKind int

// Kinds of metrics.
const (
	CounterKind MetricKind = iota
	GaugeKind
	HistogramKind
)

// Metric describes a metric of a program. It is declared next to the events that change it, and exported in a list, so
// that the metric's series exist before the first event.
type Metric struct {
	Name          string // name without the program's prefix
	Help          string
	Kind          MetricKind
	LabelNames    []string   // names of at most 3 labels
	InitialSeries [][]string // label values of the series that exist from the start
	InitialValue  float64    // initial value of the series in InitialSeries
	BucketBounds  []float64  // upper bounds of a histogram's buckets
	// SkipsFirstAdd determines whether the first call of AddToCounter is ignored. For example, a counter of
	// reconnections must not count the first connection.
	SkipsFirstAdd bool
	// MaxLabelValues is the maximum number of values of the first label if the values come from outside the program.
	// Further values are replaced by OtherLabelValues. The number 0 means that the values form a fixed set.
	MaxLabelValues int
}

// OtherLabelValues is the label value that replaces further values after Metric.MaxLabelValues is reached.
const OtherLabelValues = "(others)"

// UnlabeledSeries is the value of Metric.InitialSeries for a metric without labels.
var UnlabeledSeries = [][]string{nil}

// Counter returns a counter without labels that starts at 0.
func Counter(name, help string) *Metric {
	return &Metric{Name: name, Help: help, InitialSeries: UnlabeledSeries}
}

// CounterByLabel returns a counter with one label that has a fixed set of values.
func CounterByLabel(name, help, label string, values []string) *Metric {
	return &Metric{Name: name, Help: help, LabelNames: []string{label}, InitialSeries: singleLabelSeries(values)}
}

// Gauge returns a gauge without labels that starts at 0.
func Gauge(name, help string) *Metric {
	return &Metric{Name: name, Help: help, Kind: GaugeKind, InitialSeries: UnlabeledSeries}
}

// OptionalGauge returns a gauge that has no series until it is set to a finite value.
func OptionalGauge(name, help string, labels ...string) *Metric {
	return &Metric{Name: name, Help: help, Kind: GaugeKind, LabelNames: labels}
}

// GaugeByLabel returns a gauge with one label that has a fixed set of values. Its series start at 0. SelectGaugeState
// can use such a gauge to show which of several states is active.
func GaugeByLabel(name, help, label string, values []string) *Metric {
	return &Metric{Name: name, Help: help, Kind: GaugeKind, LabelNames: []string{label},
		InitialSeries: singleLabelSeries(values)}
}

// Histogram returns a histogram without labels.
func Histogram(name, help string, buckets []float64) *Metric {
	return &Metric{Name: name, Help: help, Kind: HistogramKind, BucketBounds: buckets, InitialSeries: UnlabeledSeries}
}

// HistogramByLabel returns a histogram with one label that has a fixed set of values.
func HistogramByLabel(name, help string, buckets []float64, label string, values []string) *Metric {
	return &Metric{Name: name, Help: help, Kind: HistogramKind, BucketBounds: buckets, LabelNames: []string{label},
		InitialSeries: singleLabelSeries(values)}
}

func singleLabelSeries(values []string) [][]string {
	series := make([][]string, len(values))
	for i, v := range values {
		series[i] = []string{v}
	}
	return series
}

// NamesAsStrings converts names to strings.
func NamesAsStrings[T ~string](all []T) []string {
	s := make([]string, len(all))
	for i, v := range all {
		s[i] = string(v)
	}
	return s
}

// StringerNames returns the results of the method String for all elements.
func StringerNames[T fmt.Stringer](all []T) []string {
	s := make([]string, len(all))
	for i, v := range all {
		s[i] = v.String()
	}
	return s
}
