package reproduce

import (
	"context"
	"fmt"

	"github.com/fedmesh/fedmesh/lab/plot"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
)

// msd is the name of the metric ‖w⁰ − w_i‖².
const msd = "msd"

// recordEvery is the number of rounds between two records of a steady-state simulation. Errors of neighbouring rounds
// are strongly correlated.
const recordEvery = 10

// steadySimulation is a simulation of linear models (lecture (82), ch5 (5.66)) with its first settled round.
type steadySimulation struct {
	*sim.Result
	from int // first settled round
}

// simulateSteadyState simulates an experiment on linear models. If the optima are drawn, each run has its own problem.
// It also records the coordinates of w_i.
func simulateSteadyState(ctx context.Context, e sim.Experiment, l data.Linear, start []float64,
	from int) (*steadySimulation, error) {
	e.Record = recordEvery
	instance := func(run int) (sim.Instance[float64], error) {
		p := data.NewLinear[float64](l, e.Agents, nil, data.Mix(e.Seed, uint64(run)))
		p.Start = start
		for j := range l.Inputs {
			p.Metrics = append(p.Metrics,
				data.Metric{Name: coordinate(j), Of: func(w []float64) float64 { return w[j] }})
		}
		return sim.Instance[float64]{Problem: p}, nil
	}
	r, err := sim.RunInstances(ctx, e, instance, nil)
	if err != nil {
		return nil, err
	}
	return &steadySimulation{r, from}, nil
}

func coordinate(j int) string { return fmt.Sprintf("w%d", j) }

// average returns the mean of a metric over the settled rounds, with an interval over the runs.
func (s *steadySimulation) average(metric string) estimate {
	return measured(s.Steady(metric, s.from))
}

// mean returns the average of w_i over the settled rounds, by coordinate.
func (s *steadySimulation) mean(inputs int) []estimate {
	var w []estimate
	for j := range inputs {
		w = append(w, s.average(coordinate(j)))
	}
	return w
}

// curve returns the mean of a metric over the runs, reduced to a plottable number of points.
func (s *steadySimulation) curve(name, metric string) plot.Curve {
	c := plot.Curve{Name: name}
	m := s.Metric(metric)
	for _, i := range plottedRecords(len(s.Rounds)) {
		c.X, c.Y = append(c.X, float64(s.Rounds[i])), append(c.Y, m.Mean[i])
	}
	return c
}

// predicted returns a curve at the same rounds, from its value at every round.
func (s *steadySimulation) predicted(name string, values []float64) plot.Curve {
	c := plot.Curve{Name: name, IsPrediction: true}
	for _, i := range plottedRecords(len(s.Rounds)) {
		c.X, c.Y = append(c.X, float64(s.Rounds[i])), append(c.Y, values[s.Rounds[i]])
	}
	return c
}

// last returns the last round.
func (s *steadySimulation) last() int { return s.Rounds[len(s.Rounds)-1] }

// plottedRecords returns the indices of the records that a diagram shows.
func plottedRecords(records int) []int {
	const most = 250
	every := (records + most - 1) / most
	var places []int
	for i := 0; i < records; i += every {
		places = append(places, i)
	}
	return places
}
