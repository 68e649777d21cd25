package sim

import (
	"fmt"
	"math"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

// algorithm simulates FedAvg or FedDec and holds the state of a run.
type algorithm interface {
	step(i int) error    // simulates round i
	model(dst []float64) // stores the current model in dst, for FedDec the agents' mean
	// measure records the metrics that only this algorithm has, for round i. measure returns an error if a personal
	// model diverges.
	measure(to *recorder, i int) error
	keeps(into *State) // adds all state except the model to the given State
}

// recorder stores the metrics of a run.
type recorder struct {
	names                []string
	values               map[string][]float64
	point                []float64 // model that is measured
	last                 []float64 // model of the last record
	recordProblemMetrics func(r *recorder)
}

// newRecorder returns a recorder for the metrics that are known for the problem. If agents have personal layers, it
// records no metric of the common model.
func newRecorder[T learner.Float](p *data.Problem[T], parted bool) *recorder {
	o := &p.Objective
	gradient := make([]float64, p.Model.ParameterCount())
	return &recorder{values: map[string][]float64{}, point: make([]float64, p.Model.ParameterCount()),
		recordProblemMetrics: func(r *recorder) {
			if parted {
				return
			}
			if o.Minimizer != nil {
				r.set("msd", squaredDistance(r.point, o.Minimizer))
			}
			if o.Excess != nil {
				r.set("excess_risk", o.Excess(r.point))
			}
			if o.Risk != nil {
				r.set("risk", o.Risk(r.point))
			}
			if o.Gradient != nil {
				o.Gradient(gradient, r.point)
				r.set("gradient_norm2", squaredDistance(gradient, nil))
			}
			for _, m := range p.Metrics {
				r.set(m.Name, m.Of(r.point))
			}
		}}
}

// squaredDistance returns ‖a − b‖². If b is nil, it returns ‖a‖².
func squaredDistance(a, b []float64) float64 {
	sum := 0.0
	for j, v := range a {
		if b != nil {
			v -= b[j]
		}
		sum += v * v
	}
	return sum
}

func (r *recorder) set(name string, v float64) {
	if _, known := r.values[name]; !known {
		r.names = append(r.names, name)
	}
	r.values[name] = append(r.values[name], v)
}

// setBytes records the payload bytes sent so far, as the daemons encode them: from agents to the server, and in total.
func (r *recorder) setBytes(e *Experiment, params int, uploads, downloads, flows int64) {
	size := func(word spec.Codec) float64 { return float64(codec.ForName[float32](word).EncodedSize(params)) }
	up := size(e.Codec) * float64(uploads)
	r.set("uplink_bytes", up)
	r.set("total_bytes", up+size(spec.CodecRaw)*float64(downloads)+size(e.Mixing.Codec)*float64(flows))
}

// maxMetric is the largest value of a metric that does not count as divergence. Its square is still finite, as
// confidence intervals require.
const maxMetric = 1e150

// record measures the model of round i. It returns an error if a metric has diverged; the record is then invalid.
func (r *recorder) record(a algorithm, i int) error {
	a.model(r.point)
	r.recordProblemMetrics(r)
	if err := a.measure(r, i); err != nil {
		return err
	}
	for _, name := range r.names {
		values := r.values[name]
		if v := values[len(values)-1]; !(math.Abs(v) <= maxMetric) {
			return fmt.Errorf("%s is %v", name, v)
		}
	}
	r.last = append(r.last[:0], r.point...)
	return nil
}
