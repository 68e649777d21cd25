package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/data"
)

// collected shows what a source of data has collected.
type collected struct {
	values   *prometheus.CounterVec // by result
	troubles gaugeSet               // by kind
	newest   measure
}

// used is the result of a value that is recorded. The others are reasons.
const used = "used"

func newCollected(r registrar) collected {
	return collected{
		values: r.counterBy("data_values_total",
			"Values that the source of data has got, by whether they were used, or why not.",
			"result", append([]string{used}, words(data.Reasons())...)),
		troubles: r.gaugeBy("data_troubles",
			"How many things keep readings from coming now, by kind; agentd status names them.", "kind",
			words(data.TroubleKinds())),
		newest: r.measure("data_newest_timestamp_seconds",
			"Time of the newest reading of the input that is furthest behind, in Unix time; only with mqtt and lines."),
	}
}

func (c *collected) observe(f agent.DataCollected) {
	before := valuesOf(f.Before)
	for result, n := range valuesOf(f.Report) {
		if n < before[result] { // a file is read anew
			before[result] = 0
		}
		c.values.WithLabelValues(result).Add(float64(n - before[result]))
	}
	oldest := int64(0)
	for _, column := range f.Columns {
		if column.Newest != 0 && (oldest == 0 || column.Newest < oldest) {
			oldest = column.Newest
		}
	}
	if oldest != 0 {
		c.newest.set(float64(oldest) / 1e9)
	}
	kinds := map[string]int{}
	for _, t := range f.Troubles {
		kinds[string(t.Kind)]++
	}
	for _, kind := range c.troubles.values {
		c.troubles.WithLabelValues(kind).Set(float64(kinds[kind]))
	}
}

// valuesOf adds up the values of all columns, by result.
func valuesOf(r data.Report) map[string]uint64 {
	all := map[string]uint64{}
	for _, column := range r.Columns {
		all[used] += column.Used
		for why, n := range column.Unused {
			all[string(why)] += n
		}
	}
	return all
}
