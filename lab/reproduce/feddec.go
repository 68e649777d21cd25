package reproduce

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/d2d/graph"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/spec"
)

// feddecExperiment compares FedDec with FedAvg on the regression problem of Fig. 4 in the FedDec paper. FedAvg is
// Algorithm 1 of that paper without mixing, that is, with the identity as mixing matrix W. The experiment varies the
// radius of the geographic graph, with the same positions, and the number H of local steps between server rounds.
type feddecExperiment struct {
	Subject About `json:"-"`

	Agents int `json:"agents"` // number of agents (n in the paper)
	// Participants is the number of agents per server round, drawn with replacement (K in the paper).
	Participants int     `json:"participants"`
	Inputs       int     `json:"inputs"`    // number of features (d in the paper)
	Rows         int     `json:"rows"`      // number of rows per agent (M in the paper)
	Deviation    float64 `json:"deviation"` // standard deviation of the elements of the feature matrices X_i
	// base of the factors c_i = Base^i, by which the targets of agent i are multiplied
	Base      float64 `json:"base"`
	BatchSize int     `json:"batch_size"` // number of rows per local step (m in the paper); 0 means all rows

	Radii       []float64           `json:"radii"`
	Weights     spec.EdgeWeightRule `json:"weights"`
	LinkUp      float64             `json:"link_up"` // probability that a link is up in a step
	ServerEvery []int               `json:"server_every"`
	// Iterations is the number T of local steps. The results use the model of the last server round.
	Iterations int `json:"iterations"`
	Instances  int `json:"instances"` // number of random problems, each with different positions of the agents
	Runs       int `json:"runs"`      // number of runs per random problem
}

// defaultFedDec returns the experiment `feddec` with its default settings.
func defaultFedDec() *feddecExperiment {
	return &feddecExperiment{
		Subject: About{"feddec", "FedDec has a smaller error than FedAvg. Its advantage grows with the time between " +
			"server rounds and with the connectivity of the agents.",
			"feddec Fig. 4"},
		Agents: 20, Participants: 2, Inputs: 25, Rows: 10, Deviation: 0.25, Base: 2, BatchSize: 1,
		Radii: []float64{0.35, 0.5}, Weights: spec.EdgeWeightsBestConstant, LinkUp: 1, ServerEvery: []int{10, 100},
		Iterations: 5000,
		Instances:  32, Runs: 10,
	}
}

// defaultFedDecFailures returns the experiment `feddec-failures` with its default settings.
func defaultFedDecFailures() *feddecExperiment {
	f := defaultFedDec()
	f.Subject = About{"feddec-failures",
		"FedDec has the same advantage over FedAvg if half of the links fail at each step.", "feddec section 2"}
	f.Weights, f.LinkUp = spec.EdgeWeightsMetropolis, 0.5
	return f
}

// About implements Experiment.
func (f *feddecExperiment) About() About { return f.Subject }

// Run implements Experiment. FedDec and FedAvg use the same problem, rows and participants, so that the ratio of their
// errors is more precise than each error alone.
func (f *feddecExperiment) Run(ctx context.Context, o Options) (*Report, error) {
	fields, err := f.newInstances(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Subject.ID, err)
	}
	var tracks []*feddecRiskCurve
	for _, h := range f.ServerEvery {
		for i := range len(f.Radii) + 1 {
			t, err := f.simulate(ctx, o, fields, h, i-1)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.Subject.ID, err)
			}
			tracks = append(tracks, t)
		}
	}
	return f.report(fields, tracks)
}

// feddecInstance is a problem with its graphs, one per radius.
type feddecInstance struct {
	problem *data.Problem[float64]
	mixings []*graph.MixingMatrix
}

// newInstances returns the random problems with their graphs. The positions are drawn again until the graph with the
// smallest radius is connected.
func (f *feddecExperiment) newInstances(o Options) ([]feddecInstance, error) {
	if err := f.validate(); err != nil {
		return nil, err
	}
	var err error
	fields := make([]feddecInstance, f.Instances)
	for i := range fields {
		seed := data.Mix(o.Seed, uint64(i))
		regression := data.Regression{Inputs: f.Inputs, Rows: f.Rows, Deviation: f.Deviation, Base: f.Base}
		if fields[i].problem, err = data.NewRegression[float64](regression, f.Agents, seed); err != nil {
			return nil, err
		}
		sparsest, err := graph.ConnectedGeographicGraph(f.Agents, slices.Min(f.Radii), rand.New(rand.NewPCG(seed, 0)))
		if err != nil {
			return nil, err
		}
		for _, r := range f.Radii {
			m, err := graph.NewMixingMatrix(graph.GeographicGraph(sparsest.Positions(), r), f.Weights)
			if err != nil {
				return nil, err
			}
			fields[i].mixings = append(fields[i].mixings, m)
		}
	}
	return fields, nil
}

func (f *feddecExperiment) validate() error {
	switch {
	case f.Agents < 2 || f.Inputs < 1 || f.Rows < 1:
		return fmt.Errorf("%d agents, %d inputs, %d rows: want at least 2, 1 and 1", f.Agents, f.Inputs, f.Rows)
	case f.Participants < 1:
		return fmt.Errorf("%d participants: want at least 1 draw", f.Participants)
	case f.Instances < 2 || f.Runs < 1:
		return fmt.Errorf("%d instances of %d runs: want at least 2 instances of 1 run, because intervals are "+
			"computed over instances", f.Instances,
			f.Runs)
	case len(f.Radii) == 0 || len(f.ServerEvery) == 0:
		return fmt.Errorf("radii %v, server_every %v: want at least one of each", f.Radii, f.ServerEvery)
	case slices.Min(f.ServerEvery) < 1 || slices.Max(f.ServerEvery) > f.Iterations:
		return fmt.Errorf("server_every %v: want 1 to the %d iterations", f.ServerEvery, f.Iterations)
	case f.Agents*f.Rows < f.Inputs:
		return fmt.Errorf("%d rows in total for %d inputs: f is not strongly convex", f.Agents*f.Rows, f.Inputs)
	}
	return nil
}

// experiment returns a simulation of Algorithm 1 of the FedDec paper with h local steps between server rounds.
func (f *feddecExperiment) experiment(o Options, runs, h int) sim.Experiment {
	e := sim.Default()
	e.Name, e.Seed, e.Runs = f.Subject.ID, o.Seed, runs
	e.Algorithm, e.Rounds = spec.FedDec, f.Iterations/h*h
	e.Record = h * max(1, f.Iterations/(200*h))
	e.Participants.Count, e.Sampling = f.Participants, spec.SamplingWithReplacement
	e.BatchSize = sim.Each(float64(f.BatchSize))
	e.StepSize = spec.StepSize{IsDiminishing: true}
	e.Mixing.ServerEvery, e.Mixing.LinkUp = h, f.LinkUp
	return e
}

// simulate runs all instances with h local steps between server rounds, on the graphs of one radius. If radius is −1,
// it simulates no mixing. It records only the steps that end with a server round, because all agents then have the same
// model.
func (f *feddecExperiment) simulate(ctx context.Context, o Options, fields []feddecInstance, h,
	radius int) (*feddecRiskCurve, error) {
	runs := o.fullOrQuickCount(f.Runs, 1)
	r, err := sim.RunInstances(ctx, f.experiment(o, len(fields)*runs, h), func(run int) (sim.Instance[float64], error) {
		in := fields[run/runs]
		if radius < 0 {
			return sim.Instance[float64]{Problem: in.problem}, nil
		}
		return sim.Instance[float64]{Problem: in.problem, Mixing: in.mixings[radius]}, nil
	}, nil)
	if err != nil {
		return nil, err
	}
	return newFedDecTrack(r, fields, h, radius), nil
}
