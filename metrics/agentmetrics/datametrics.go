package agentmetrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/metrics"
)

// dataMetrics shows what has come of the data.
type dataMetrics struct {
	values              *prometheus.CounterVec // by input and result
	blockingTroubles    metrics.GaugeSet       // by kind, that keep readings from coming
	nonBlockingTroubles metrics.GaugeSet       // by kind, the others
	newest              metrics.OptionalGauge
	unusableShare       metrics.OptionalGauge

	mu     sync.Mutex // the agents of a process share its metrics
	inputs map[string]bool
}

const (
	// resultUsed is the result of a value that is used. The others are reasons.
	resultUsed = "used"
	// mostInputs bounds the inputs with series of their own: a file may have thousands of columns. The rest add up.
	mostInputs  = 64
	otherInputs = "(others)"
)

func newDataMetrics(r metrics.Registrar) *dataMetrics {
	var troubles, doubts []data.TroubleKind
	for _, kind := range data.TroubleKinds() {
		if kind.Doubtful() {
			doubts = append(doubts, kind)
		} else {
			troubles = append(troubles, kind)
		}
	}
	return &dataMetrics{
		values: r.Counters("data_values_total",
			"Values of the data, by input or column (the first 64), and whether they are used, or why not; under gap "+
				"and no_label rows that were not made for lack of one.",
			"input", "result"),
		blockingTroubles: r.GaugeByLabel("data_troubles",
			"How many things keep readings from coming now, by kind; agentd status names them.", "kind",
			metrics.ToStrings(troubles)),
		nonBlockingTroubles: r.GaugeByLabel("data_doubts",
			"Current number of inputs, columns and topics with doubtful data, by kind; agentd status names them.",
			"kind", metrics.ToStrings(doubts)),
		newest: r.OptionalGauge("data_newest_timestamp_seconds",
			"Time of the newest value of the input that is furthest behind, in Unix time; only of data with times."),
		unusableShare: r.OptionalGauge("data_unusable_ratio",
			"Largest share that cannot be used, of the lines of a file or of the values of an input; above "+
				"data.max_bad the device declines."),
		inputs: map[string]bool{},
	}
}

// inputLabel returns the label value of an input. It makes all series of the input at the first call.
func (c *dataMetrics) inputLabel(name string) string {
	name = metrics.LabelValue(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.inputs[name] {
		if len(c.inputs) >= mostInputs {
			name = otherInputs
		}
		c.inputs[name] = true
		for _, result := range append(metrics.ToStrings(data.Reasons()), resultUsed) {
			c.values.WithLabelValues(name, result)
		}
	}
	return name
}

func (c *dataMetrics) observe(f agent.DataCollected) {
	before := map[string]data.ColumnReport{}
	for _, column := range f.Before.Columns {
		before[column.Name] = column
	}
	oldest := int64(0)
	for _, column := range f.Columns {
		input, was := c.inputLabel(column.Name), before[column.Name]
		add := func(result string, n, was uint64) {
			if n < was { // a file is read anew, or another task's rows are made
				was = 0
			}
			c.values.WithLabelValues(input, result).Add(float64(n - was))
		}
		add(resultUsed, column.Used, was.Used)
		for why, n := range column.Unused {
			add(string(why), n, was.Unused[why])
		}
		if column.Newest != 0 && (oldest == 0 || column.Newest < oldest) {
			oldest = column.Newest
		}
	}
	if oldest != 0 {
		c.newest.Set(float64(oldest) / 1e9)
	}
	c.unusableShare.Set(f.LargestWrongShare)
	kinds := map[string]int{}
	for _, t := range f.Troubles {
		kinds[string(t.Kind)]++
	}
	for _, set := range []metrics.GaugeSet{c.blockingTroubles, c.nonBlockingTroubles} {
		for _, kind := range set.Values {
			set.WithLabelValues(kind).Set(float64(kinds[kind]))
		}
	}
}
