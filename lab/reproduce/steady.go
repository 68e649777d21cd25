package reproduce

import (
	"context"
	"fmt"

	"github.com/fedmesh/fedmesh/lab/plot"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
)

// msd is the name of the metric ‖w⁰ − w_i‖², the squared distance of the model w_i from the optimum w⁰.
const msd = "msd"

// recordEvery is the number of rounds between two records. More frequent records add little, because successive errors
// are strongly correlated.
const recordEvery = 10

// steadySimulation is the simulation of a linear model, with the first round in which the error has settled. The model
// is given by equation (82) of the lecture and equation (5.66) in chapter 5 of Vlaski and Sayed.
type steadySimulation struct {
	*sim.Result
	from int // first round in which the error has settled
}

// simulateSteadyState simulates linear models and records the error and each coordinate of the model. If the optima are
// random, each run has a different problem.
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

// mean returns the average model over the settled rounds, with one estimate per coordinate.
func (s *steadySimulation) mean(inputs int) []estimate {
	var w []estimate
	for j := range inputs {
		w = append(w, s.average(coordinate(j)))
	}
	return w
}

// curve returns the mean of a metric over the runs, thinned out for plotting.
func (s *steadySimulation) curve(name, metric string) plot.Curve {
	c := plot.Curve{Name: name}
	m := s.Metric(metric)
	for _, i := range plottedRecords(len(s.Rounds)) {
		c.X, c.Y = append(c.X, float64(s.Rounds[i])), append(c.Y, m.Mean[i])
	}
	return c
}

// predicted returns a predicted curve at the plotted rounds. values has one element per round.
func (s *steadySimulation) predicted(name string, values []float64) plot.Curve {
	c := plot.Curve{Name: name, IsPrediction: true}
	for _, i := range plottedRecords(len(s.Rounds)) {
		c.X, c.Y = append(c.X, float64(s.Rounds[i])), append(c.Y, values[s.Rounds[i]])
	}
	return c
}

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
