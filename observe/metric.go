package observe

import "fmt"

// MetricKind is the kind of a metric.
type MetricKind int

// The kinds.
const (
	CounterKind MetricKind = iota
	GaugeKind
	HistogramKind
)

// Metric describes a metric of a program. It is declared beside the events that change it, in a list that its package
// exports, so that its series exist before the first event.
type Metric struct {
	Name          string // without the program's prefix
	Help          string
	Kind          MetricKind
	LabelNames    []string   // the names of at most 3 labels
	InitialSeries [][]string // label values of the series that exist from the start
	InitialValue  float64    // the value of these series
	BucketBounds  []float64  // upper bounds, of a histogram
	// SkipsFirstAdd: the first AddToCounter is not counted, such as the first connection in a number of reconnections.
	SkipsFirstAdd bool
	// MaxLabelValues is the maximum number of different values of the first label, if they come from outside the
	// program. Further values share the value OtherLabelValues. 0 = the first label has a closed set of values.
	MaxLabelValues int
}

// OtherLabelValues is the label value for the values that have no series of their own.
const OtherLabelValues = "(others)"

// UnlabeledSeries is one series without labels, for Metric.InitialSeries.
var UnlabeledSeries = [][]string{nil}

// Counter returns a counter that begins with 0.
func Counter(name, help string) *Metric {
	return &Metric{Name: name, Help: help, InitialSeries: UnlabeledSeries}
}

// CounterByLabel returns a counter with a label from a closed set.
func CounterByLabel(name, help, label string, values []string) *Metric {
	return &Metric{Name: name, Help: help, LabelNames: []string{label}, InitialSeries: singleLabelSeries(values)}
}

// Gauge returns a gauge that begins with 0.
func Gauge(name, help string) *Metric {
	return &Metric{Name: name, Help: help, Kind: GaugeKind, InitialSeries: UnlabeledSeries}
}

// OptionalGauge returns a gauge that has no series until it is set to a finite value.
func OptionalGauge(name, help string, labels ...string) *Metric {
	return &Metric{Name: name, Help: help, Kind: GaugeKind, LabelNames: labels}
}

// GaugeByLabel returns a gauge with a label from a closed set, whose series begin with 0. SelectGaugeState makes it a
// state set.
func GaugeByLabel(name, help, label string, values []string) *Metric {
	return &Metric{Name: name, Help: help, Kind: GaugeKind, LabelNames: []string{label},
		InitialSeries: singleLabelSeries(values)}
}

// Histogram returns a histogram without labels.
func Histogram(name, help string, buckets []float64) *Metric {
	return &Metric{Name: name, Help: help, Kind: HistogramKind, BucketBounds: buckets, InitialSeries: UnlabeledSeries}
}

// HistogramByLabel returns a histogram with a label from a closed set.
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

// NamesAsStrings returns the elements of a closed set of names as strings.
func NamesAsStrings[T ~string](all []T) []string {
	s := make([]string, len(all))
	for i, v := range all {
		s[i] = string(v)
	}
	return s
}

// StringerNames returns the names of a closed set of values.
func StringerNames[T fmt.Stringer](all []T) []string {
	s := make([]string, len(all))
	for i, v := range all {
		s[i] = v.String()
	}
	return s
}
