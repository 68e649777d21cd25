package reproduce

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/fedmesh/fedmesh/lab/plot"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/lab/theory"
	"github.com/fedmesh/fedmesh/spec"
)

// boundExperiment tests Theorem 2.1 of Renard's notes on quadratic risks, for which all constants of the theorem are
// known.
type boundExperiment struct {
	Smoothness  float64     `json:"smoothness"`  // smoothness constant L of the risks
	Eigenvalues []float64   `json:"eigenvalues"` // eigenvalues of the Hessian A divided by L; the largest is 1
	Centres     [][]float64 `json:"centres"`     // minimiser c_i of each client's risk
	Start       []float64   `json:"start"`       // initial model x_0
	Cases       []boundCase `json:"cases"`
	Runs        int         `json:"runs"` // number of runs per case
}

// boundCase is one combination of parameters of the theorem.
type boundCase struct {
	StepSize  float64 `json:"step_size"` // step size η
	Steps     int     `json:"steps"`     // number of local steps τ per round
	Rounds    int     `json:"rounds"`    // number of rounds T
	Deviation float64 `json:"deviation"` // standard deviation σ of the gradient noise, for the whole vector
}

// defaultBound returns the default instance of the experiment `bound`. One case is the reference, and every other case
// changes one parameter.
func defaultBound() *boundExperiment {
	return &boundExperiment{
		Smoothness: 1, Eigenvalues: []float64{1, 0.5, 0.25, 0.1, 0.02}, Centres: data.BoundCentres(8, 5),
		Start: []float64{5, 5, 5, 5, 5},
		Cases: []boundCase{{0.25, 5, 40, 1}, {0.1, 5, 40, 1}, {0.02, 5, 40, 1}, {0.25, 1, 40, 1}, {0.25, 20, 40, 1},
			{0.25, 5, 400, 1},
			{0.25, 5, 4000, 1}, {0.25, 5, 40, 0}, {0.25, 5, 40, 4}},
		Runs: 64,
	}
}

// About implements Experiment.
func (b *boundExperiment) About() About {
	return About{"bound", "The mean suboptimality of the shadow sequence stays below the bound of Theorem 2.1.",
		"notes Theorem 2.1 (4)"}
}

func (b *boundExperiment) key(c boundCase) string {
	return fmt.Sprintf("L%g_eta%g_tau%d_T%d_s%g", b.Smoothness, c.StepSize, c.Steps, c.Rounds, c.Deviation)
}

func (c boundCase) String() string {
	return fmt.Sprintf("η = %g, τ = %d, T = %d, σ = %g", c.StepSize, c.Steps, c.Rounds, c.Deviation)
}

// Run implements Experiment. It measures the left side of inequality (4) of Renard's notes. Because all clients have
// the same Hessian matrix A, the mean of their models follows gradient descent on the aggregate risk F. Therefore the
// left side is also known exactly, and the term with the heterogeneity ζ is not needed.
func (b *boundExperiment) Run(ctx context.Context, o Options) (*Report, error) {
	if err := b.validate(); err != nil {
		return nil, fmt.Errorf("bound: %w", err)
	}
	r := &Report{About: b.About()}
	var longest *boundRun
	for _, c := range b.Cases {
		t, err := b.simulate(ctx, o, c)
		if err != nil {
			return nil, fmt.Errorf("bound: %v: %w", c, err)
		}
		running := runningSuboptimality(t)
		left := average(running[c.Rounds])
		exact := b.theory(c)
		key := b.key(c)
		r.Values.Set(key+"_left", left.mean)
		r.Values.Set(key+"_left_ci95", left.halfWidth)
		r.Values.Set(key+"_left_theory", exact.Suboptimality())
		r.Values.Set(key+"_right", exact.Bound())
		r.find(Finding{What: c.String() + ": left side of (4)", Measured: left.String(),
			Expected: fmt.Sprintf("%.4g, exactly", exact.Suboptimality()),
			Holds:    agreesWithinShare(left, exact.Suboptimality(), 1e-9) && left.halfWidth <= 0.1*left.mean})
		r.find(Finding{What: c.String() + ": below the right side", Measured: left.String(),
			Expected: fmt.Sprintf("< %.4g, ×%.3g of it", exact.Bound(), exact.Bound()/left.mean),
			Holds:    left.mean+left.halfWidth < exact.Bound()})
		if longest == nil || c.Rounds > longest.Rounds {
			longest = &boundRun{c, running}
		}
	}
	b.plot(r, longest)
	return r, nil
}

func (b *boundExperiment) validate() error {
	d := len(b.Eigenvalues)
	switch {
	case d == 0 || slices.Max(b.Eigenvalues) != 1 || slices.Min(b.Eigenvalues) <= 0 || b.Smoothness <= 0:
		return fmt.Errorf("smoothness is %v and eigenvalues are %v: want a positive smoothness and positive "+
			"eigenvalues with a maximum of 1",
			b.Smoothness, b.Eigenvalues)
	case len(b.Centres) == 0 || slices.ContainsFunc(b.Centres, func(c []float64) bool { return len(c) != d }) ||
		len(b.Start) != d:
		return fmt.Errorf("want centres and a start with %d numbers each, one for each eigenvalue", d)
	case len(b.Cases) == 0 || b.Runs < 2:
		return errors.New("want at least one case and at least two runs")
	}
	for _, c := range b.Cases {
		if c.StepSize > 1/(4*b.Smoothness) {
			return fmt.Errorf("%v: the theorem requires η ≤ 1/(4L) = %g", c, 1/(4*b.Smoothness))
		}
		if c.Deviation < 0 {
			return fmt.Errorf("%v: want σ ≥ 0", c)
		}
	}
	return nil
}

func (b *boundExperiment) theory(c boundCase) theory.Quadratics {
	a := mat.NewSymDense(len(b.Eigenvalues), nil)
	for j, v := range b.Eigenvalues {
		a.SetSym(j, j, b.Smoothness*v)
	}
	return theory.Quadratics{Hessian: a, Centres: b.Centres, Start: b.Start, NoiseVar: c.Deviation * c.Deviation,
		StepSize: c.StepSize,
		Steps:    c.Steps, Rounds: c.Rounds}
}

// simulate runs Algorithm 1 of Renard's notes. All clients take c.Steps local steps with exact gradients plus noise.
func (b *boundExperiment) simulate(ctx context.Context, o Options, c boundCase) (*sim.Result, error) {
	d := len(b.Eigenvalues)
	scaled := make([]float64, d)
	for j, v := range b.Eigenvalues {
		scaled[j] = b.Smoothness * v
	}
	problem, err := data.NewQuadratics[float64](data.Quadratics{Eigenvalues: scaled, Centres: b.Centres,
		Start: b.Start}, nil)
	if err != nil {
		return nil, err
	}
	e := sim.Default()
	e.Seed, e.Runs, e.Rounds, e.Record = o.Seed, o.fullOrQuickCount(b.Runs, 12), c.Rounds, 1
	e.Participants.Count, e.RecordMeanIterate = 0, true
	e.LocalSteps, e.BatchSize = sim.Each(float64(c.Steps)), sim.Each(0)
	e.StepSize = spec.StepSize{Constant: c.StepSize}
	if c.Deviation > 0 {
		e.GradientNoise = spec.GradientNoise{Law: spec.NoiseGaussian, Variance: c.Deviation * c.Deviation / float64(d)}
	}
	return sim.RunInstances(ctx, e, func(int) (sim.Instance[float64], error) {
		return sim.Instance[float64]{Problem: problem},
			nil
	}, nil)
}

// runningSuboptimality returns the left side of inequality (4) of Renard's notes up to each round, indexed by round and
// run.
func runningSuboptimality(r *sim.Result) [][]float64 {
	m := r.Metric("shadow_excess_risk")
	left := make([][]float64, len(r.Rounds))
	sums := make([]float64, len(m.Runs))
	for i := range r.Rounds {
		left[i] = make([]float64, len(sums))
		for run, values := range m.Runs {
			if i > 0 { // round 0 is the initial model, before any local step
				sums[run] += values[i]
				left[i][run] = sums[run] / float64(i)
			}
		}
	}
	return left
}

// boundRun holds the results of one case: the left side of inequality (4) of Renard's notes up to each round, indexed
// by round and run.
type boundRun struct {
	boundCase
	left [][]float64
}

// plot draws both sides of inequality (4) of Renard's notes as functions of the number of rounds.
func (b *boundExperiment) plot(r *Report, c *boundRun) {
	measured, exact := plot.Curve{Name: "left side, measured"}, plot.Curve{Name: "left side, exact", IsPrediction: true}
	right := plot.Curve{Name: "right side"}
	for at := 1.0; ; at *= 1.15 {
		now := c.boundCase
		now.Rounds = min(int(math.Ceil(at)), c.Rounds)
		x, q := float64(now.Rounds*c.Steps), b.theory(now)
		average(c.left[now.Rounds]).appendTo(&measured, x)
		exact.X, exact.Y = append(exact.X, x), append(exact.Y, q.Suboptimality())
		right.X, right.Y = append(right.X, x), append(right.Y, q.Bound())
		if now.Rounds == c.Rounds {
			break
		}
	}
	r.figure("bound", plot.Figure{Title: fmt.Sprintf("Theorem 2.1 with η = %g, τ = %d, σ = %g", c.StepSize, c.Steps,
		c.Deviation),
		X: plot.Axis{Label: "local steps τT", Log: true}, Y: plot.Axis{Label: "mean of F(x̄) − F(x*)", Log: true},
		Curves: []plot.Curve{measured, exact, right}})
}
