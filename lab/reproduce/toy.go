package reproduce

import (
	"context"
	"fmt"
	"math"

	"github.com/fedmesh/fedmesh/lab/plot"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/lab/theory"
	"github.com/fedmesh/fedmesh/spec"
)

// toyExperiment reproduces section 3.1 of Renard's notes. A linear classifier for two classes is trained by Algorithm 1
// of the notes, with the squared loss (ŷ − y)² of the prediction ŷ for the target y.
type toyExperiment struct {
	Agents   int       `json:"agents"`   // number of agents (M)
	Rows     int       `json:"rows"`     // number of rows per agent
	Mean     []float64 `json:"mean"`     // mean of class +1; the mean of class −1 is its negative
	Variance float64   `json:"variance"` // variance of each coordinate around the mean
	// Skew is the difference of the share of class +1 between the last and the first agent. The share rises linearly
	// from ½ − Skew/2 to ½ + Skew/2.
	Skew float64 `json:"skew"`

	StepSize  float64 `json:"step_size"`   // step size η
	Steps     int     `json:"local_steps"` // number of local steps τ per round
	BatchSize int     `json:"batch_size"`
	Rounds    int     `json:"rounds"`
	Runs      int     `json:"runs"` // number of runs; all runs use the same rows
}

// defaultToy returns the experiment `toy` with its default settings. Renard's notes do not specify them, so we chose
// them.
func defaultToy() *toyExperiment {
	return &toyExperiment{Agents: 10, Rows: 40, Mean: []float64{1, 0.5}, Variance: 1, Skew: 0.8, StepSize: 0.01,
		Steps:     5,
		BatchSize: 4, Rounds: 200, Runs: 64}
}

// About implements Experiment.
func (y *toyExperiment) About() About {
	return About{"toy",
		"With federated averaging, a linear model with the squared loss learns to separate two classes.", "notes 3.1"}
}

// Run implements Experiment. It compares the measured mean and second moment of the model with their exact values for
// the given rows.
func (y *toyExperiment) Run(ctx context.Context, o Options) (*Report, error) {
	if y.Agents < 1 || y.Rows < 1 || len(y.Mean) == 0 || y.Variance < 0 || y.Runs < 2 {
		return nil, fmt.Errorf("toy: %d agents, %d rows, a mean of %d numbers, variance %v, %d runs: want at least "+
			"1, 1, 1, 0 and 2",
			y.Agents, y.Rows, len(y.Mean), y.Variance, y.Runs)
	}
	problem, err := data.NewToy[float64](data.Toy{Mean: y.Mean, Variance: y.Variance, Rows: y.Rows, Skew: y.Skew},
		y.Agents, nil, o.Seed)
	if err != nil {
		return nil, fmt.Errorf("toy: %w", err)
	}
	for j := range y.Mean {
		problem.Metrics = append(problem.Metrics,
			data.Metric{Name: coordinate(j), Of: func(w []float64) float64 { return w[j] }})
	}
	t, err := sim.RunInstances(ctx, y.experiment(o),
		func(int) (sim.Instance[float64], error) { return sim.Instance[float64]{Problem: problem}, nil }, nil)
	if err != nil {
		return nil, fmt.Errorf("toy: %w", err)
	}
	r := &Report{About: y.About()}
	y.judge(r, problem, t)
	return r, nil
}

func (y *toyExperiment) experiment(o Options) sim.Experiment {
	e := sim.Default()
	e.Seed, e.Runs, e.Rounds = o.Seed, o.fullOrQuickCount(y.Runs, 24), y.Rounds
	e.Participants.Count = 0
	e.LocalSteps, e.BatchSize = sim.Each(float64(y.Steps)), sim.Each(float64(y.BatchSize))
	e.StepSize = spec.StepSize{Constant: y.StepSize}
	return e
}

// theory returns the problem for package theory. The agents store all rows scaled by √2.
func (y *toyExperiment) theory(p *data.Problem[float64]) theory.Rows {
	rows := theory.Rows{StepSize: y.StepSize, Steps: y.Steps, Batch: y.BatchSize}
	load := p.Loader(nil)
	for k := range p.Agents {
		held := load(k).Samples
		var xs [][]float64
		var ys []float64
		for i := range held.Len() {
			row, target := held.Row(i)
			x := make([]float64, len(row))
			for j, v := range row {
				x[j] = v / math.Sqrt2
			}
			xs, ys = append(xs, x), append(ys, target/math.Sqrt2)
		}
		rows.X, rows.Y = append(rows.X, xs), append(rows.Y, ys)
	}
	return rows
}

func (y *toyExperiment) judge(r *Report, p *data.Problem[float64], t *sim.Result) {
	means, excess := y.theory(p).Curve(p.Objective.Minimizer, y.Rounds)
	for j := range y.Mean {
		r.compare(fmt.Sprintf("w%d", j), fmt.Sprintf("coordinate %d of the mean model at the end", j),
			measured(t.At(coordinate(j), y.Rounds)),
			means[y.Rounds][j], math.Inf(1))
	}
	early := y.Rounds // an early round, in which the result still depends on the number of local steps
	for i, round := range t.Rounds {
		if excess[round] < excess[0]/20 && i > 0 {
			early = round
			break
		}
	}
	r.compare("excess_loss_early", fmt.Sprintf("loss above the minimum, in round %d", early),
		measured(t.At("excess_risk", early)),
		excess[early], 0.5)
	late, records := 0.0, 0.0
	for _, i := range t.Rounds {
		if i >= y.Rounds/2 {
			late, records = late+excess[i], records+1
		}
	}
	r.compare("excess_loss", "loss above the minimum, in the second half of the rounds",
		measured(t.Steady("excess_risk", y.Rounds/2)),
		late/records, 0.5)
	left := measured(t.Steady("excess_risk", y.Rounds/2)).mean / excess[0]
	r.find(Finding{What: "share of the initial loss above the minimum", Measured: fmt.Sprintf("%.2g", left),
		Expected: "< 0.05", Holds: left < 0.05})
	accuracy := p.Metrics[0].Of
	begin, end, best := accuracy(make([]float64, len(y.Mean))), measured(t.At("accuracy", y.Rounds)),
		accuracy(p.Objective.Minimizer)
	possible := 0.0
	for _, v := range y.Mean {
		possible += v * v / y.Variance
	}
	possible = math.Erfc(-math.Sqrt(possible/2)) / 2
	r.Values.Set("loss", p.Objective.Minimum+t.At("excess_risk", y.Rounds).Mean)
	r.Values.Set("accuracy_start", begin)
	r.Values.Set("accuracy", end.mean)
	r.Values.Set("accuracy_ci95", end.halfWidth)
	r.Values.Set("accuracy_least_squares", best)
	r.find(Finding{What: fmt.Sprintf("accuracy at the end; %.3g at the start", begin), Measured: end.String(),
		Expected: fmt.Sprintf("at least %.3g (least squares on all rows) − 0.02; Φ(‖m‖/σ) = %.3g is possible on new "+
			"rows", best, possible),
		Holds: end.mean >= best-0.02 && end.mean > begin})
	y.plots(r, t, excess, best)
}

func (y *toyExperiment) plots(r *Report, t *sim.Result, excess []float64, best float64) {
	loss := plot.Figure{Title: "Loss of the classifier", X: plot.Axis{Label: "round t"},
		Y: plot.Axis{Label: "loss above the minimum", Log: true}}
	hits := plot.Figure{Title: "Accuracy of the classifier", X: plot.Axis{Label: "round t"},
		Y: plot.Axis{Label: "share of correctly classified rows"}}
	exact := plot.Curve{Name: "exact recursion", IsPrediction: true}
	measuredLoss, accuracy := plot.Curve{Name: "measured"}, plot.Curve{Name: "measured"}
	for _, i := range t.Rounds {
		x := float64(i)
		measured(t.At("excess_risk", i)).appendTo(&measuredLoss, x)
		measured(t.At("accuracy", i)).appendTo(&accuracy, x)
		exact.X, exact.Y = append(exact.X, x), append(exact.Y, excess[i])
	}
	loss.Curves = []plot.Curve{measuredLoss, exact}
	hits.Curves = []plot.Curve{accuracy,
		{Name: "least squares on all rows", X: []float64{0, float64(y.Rounds)}, Y: []float64{best, best},
			IsPrediction: true}}
	r.figure("toy-loss", loss)
	r.figure("toy-accuracy", hits)
}
