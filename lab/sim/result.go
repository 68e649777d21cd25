package sim

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/d2d/graph"
	"github.com/fedmesh/fedmesh/lab/theory"
)

// Result holds the measurements of a simulation.
type Result struct {
	Experiment Experiment `json:"experiment"`
	// numbers of the recorded rounds; the start has the number 0, or 1 for FedDec
	Rounds  []int       `json:"rounds"`
	Metrics []Metric    `json:"metrics"`
	Final   [][]float64 `json:"final"` // last model of each run; nil after a divergence
	// nil if all runs completed; otherwise the curves end before the divergence
	Divergence *Divergence `json:"divergence"`
	Network    *Network    `json:"network"` // graph of FedDec's first run; nil without a graph
}

// Network is the mixing graph of a run with measured and computed properties.
type Network struct {
	*graph.MixingMatrix
	Health []float64 // share of iterations in which each edge was up; nil after a divergence
	// SecondEigenvalue is |λ̂₂| = |λ₂(E[WWᵀ])|, the second eigenvalue of the expected squared mixing matrix (FedDec
	// paper, Theorem 1). SecondEigenvalue is NaN if there are too many agents.
	SecondEigenvalue float64
}

// MarshalJSON encodes the graph in the format of a graph file, with edge weights, the health of the edges in the same
// order, the second eigenvalue |λ̂₂| and the constant α. |λ̂₂| and α are null if they are infinite or unknown.
func (n *Network) MarshalJSON() ([]byte, error) {
	finite := func(v float64) *float64 {
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return nil
		}
		return &v
	}
	return json.Marshal(struct {
		SecondEigenvalue *float64        `json:"second_eigenvalue"`
		Alpha            *float64        `json:"alpha"`
		Graph            json.RawMessage `json:"graph"`
		Health           []float64       `json:"health"`
	}{finite(n.SecondEigenvalue), finite(n.Alpha()), n.Graph.JSON(n.EdgeWeights), n.Health})
}

// Alpha returns the constant α = |λ̂₂|/(1 − |λ̂₂|) of the FedDec paper, computed from SecondEigenvalue.
func (n *Network) Alpha() float64 { return graph.MixingAlphaOfEigenvalue(n.SecondEigenvalue) }

// Metric holds the values of a metric over the rounds.
type Metric struct {
	Name string    `json:"name"`
	Mean []float64 `json:"mean"` // mean over the runs at each recorded round
	// half-width of the 95 % confidence interval (Student's t distribution); nil for a single run
	CI95 []float64   `json:"ci95"`
	Runs [][]float64 `json:"runs"` // values by run and record
}

// Estimate is a mean over runs with the half-width of its 95 % confidence interval (Student's t). The half-width is
// +Inf for a single run.
type Estimate struct{ Mean, Half float64 }

// Metric returns the metric with the given name. Metric panics if the problem has no such metric.
func (r *Result) Metric(name string) *Metric {
	for i := range r.Metrics {
		if r.Metrics[i].Name == name {
			return &r.Metrics[i]
		}
	}
	names := make([]string, len(r.Metrics))
	for i, m := range r.Metrics {
		names[i] = m.Name
	}
	panic(fmt.Sprintf("sim: unknown metric %q; available metrics: %q", name, names))
}

// Steady returns the mean of a metric over all recorded rounds from the round number from on. The confidence interval
// is computed over the means of the runs.
func (r *Result) Steady(name string, from int) Estimate {
	first, _ := slices.BinarySearch(r.Rounds, from)
	means := make([]float64, 0, len(r.Final))
	for _, run := range r.Metric(name).Runs {
		sum := 0.0
		for _, v := range run[first:] {
			sum += v
		}
		means = append(means, sum/float64(len(run)-first))
	}
	mean, half := theory.Interval95(means)
	return Estimate{mean, half}
}

// At returns the value of a metric at a recorded round. At panics if the round was not recorded.
func (r *Result) At(name string, round int) Estimate {
	at, found := slices.BinarySearch(r.Rounds, round)
	if !found {
		panic(fmt.Sprintf("sim: round %d was not recorded", round))
	}
	values := make([]float64, 0, len(r.Final))
	for _, run := range r.Metric(name).Runs {
		values = append(values, run[at])
	}
	mean, half := theory.Interval95(values)
	return Estimate{mean, half}
}

// collect combines the records of all runs into a result, which ends at the earliest divergence.
func collect(e Experiment, rounds []int, tracks []*runRecord) *Result {
	r := &Result{Experiment: e, Rounds: rounds}
	for run, t := range tracks {
		if d := t.divergence; d != nil && (r.Divergence == nil || d.Round < r.Divergence.Round) {
			r.Divergence = &Divergence{Run: run, Round: d.Round, Reason: d.Reason}
		}
	}
	if r.Divergence != nil {
		n, _ := slices.BinarySearch(rounds, r.Divergence.Round)
		r.Rounds = rounds[:n]
	}
	for _, name := range tracks[0].recorder.names {
		m := Metric{Name: name}
		for _, t := range tracks {
			m.Runs = append(m.Runs, t.recorder.values[name][:len(r.Rounds)])
		}
		column := make([]float64, len(tracks))
		for i := range r.Rounds {
			for run, values := range m.Runs {
				column[run] = values[i]
			}
			mean, half := theory.Interval95(column)
			m.Mean = append(m.Mean, mean)
			if len(tracks) > 1 {
				m.CI95 = append(m.CI95, half)
			}
		}
		r.Metrics = append(r.Metrics, m)
	}
	if r.Divergence != nil { // the progress of the other runs depends on the machine, so their final models are omitted
		return r
	}
	for _, t := range tracks {
		r.Final = append(r.Final, t.recorder.last)
	}
	return r
}
