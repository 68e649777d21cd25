package reproduce

import (
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/fedmesh/fedmesh/lab/plot"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/lab/theory"
)

// lmsSettings describes federated averaging of linear models with squared loss, as in equations (5.66)–(5.68) in
// chapter 5 of Vlaski and Sayed. Agents may differ in the number of steps, batch sizes, data distributions and optima.
type lmsSettings struct {
	Participants int         `json:"participants"`
	StepSize     float64     `json:"step_size"`
	LocalSteps   []int       `json:"local_steps"`
	BatchSizes   []int       `json:"batch_sizes"`
	Regressors   [][]float64 `json:"regressors"` // diagonal of each agent's regressor covariance R_k
	NoiseVar     []float64   `json:"noise_var"`
	Optima       [][]float64 `json:"optima"` // optimum w_k⁰ of each agent
	Runs         int         `json:"runs"`
	Window       int         `json:"window"` // number of rounds per run over which the steady-state error is averaged
}

// theory returns the same problem for package theory, which computes the exact error.
func (l lmsSettings) theory(normalized bool) theory.LMS {
	m := theory.LMS{StepSize: l.StepSize, Participants: l.Participants, Unnormalized: !normalized}
	for k, optimum := range l.Optima {
		r := mat.NewSymDense(len(optimum), nil)
		for j := range optimum {
			r.SetSym(j, j, l.Regressors[k][j])
		}
		m.Agents = append(m.Agents, theory.LMSAgent{Covariance: r, Optimum: optimum, NoiseVar: l.NoiseVar[k],
			LocalSteps: l.LocalSteps[k], BatchSize: l.BatchSizes[k]})
	}
	return m
}

// validate returns an error if lists differ in length or if the theory does not cover the settings. The simulation
// checks all others.
func (l lmsSettings) validate() error {
	k := len(l.Optima)
	if k == 0 || len(l.LocalSteps) != k || len(l.BatchSizes) != k || len(l.Regressors) != k || len(l.NoiseVar) != k {
		return fmt.Errorf("%d optima, %d local steps, %d batch sizes, %d regressors and %d noise variances: want one "+
			"of each per agent",
			k, len(l.LocalSteps), len(l.BatchSizes), len(l.Regressors), len(l.NoiseVar))
	}
	d := len(l.Optima[0])
	for i, r := range l.Regressors {
		if d == 0 || len(r) != d || len(l.Optima[i]) != d || slices.Min(r) <= 0 {
			return fmt.Errorf("agent %d: regressors %v and optimum %v: want %d numbers each, at least one, and "+
				"positive regressors", i, r, l.Optima[i], d)
		}
	}
	if l.Runs < 2 || l.Window < 1 {
		return fmt.Errorf("%d runs, window of %d: want at least 2 runs for an interval and a window of at least 1",
			l.Runs, l.Window)
	}
	return l.theory(true).Validate()
}

// experiment returns the simulation. It runs burn rounds until the error has settled, and then the measured window.
func (l lmsSettings) experiment(o Options, normalized bool, burn int) sim.Experiment {
	e := sim.Default()
	e.Seed, e.Runs = o.Seed, o.fullOrQuickCount(l.Runs, 24)
	e.Agents, e.Participants.Count = len(l.Optima), l.Participants
	e.LocalSteps, e.BatchSize = perAgent(l.LocalSteps), perAgent(l.BatchSizes)
	e.StepSize.Constant, e.StepSize.NormalizesStepSize = l.StepSize, normalized
	e.Rounds = burn + o.fullOrQuickCount(l.Window, 2000)
	return e
}

func (l lmsSettings) problem() data.Linear {
	return data.Linear{Inputs: len(l.Optima[0]), Regressors: l.Regressors, Noise: l.NoiseVar, Optima: l.Optima}
}

// burnInRounds returns the number of rounds after which the influence of the initial model has decreased by a factor of
// 10,000, in the slowest mode of the mean and the second moment.
func burnInRounds(exact theory.Steady) int {
	return 1 + int(min(1e9, math.Ceil(math.Log(1e4)/math.Abs(math.Log(exact.Rate)))))
}

func perAgent(numbers []int) sim.PerAgent {
	values := make([]float64, len(numbers))
	for k, n := range numbers {
		values[k] = float64(n)
	}
	return sim.Each(values...)
}

// steadyMSD reproduces problem 5.3 in chapter 5 of Vlaski and Sayed, the steady-state error of federated averaging.
type steadyMSD struct{ lmsSettings }

// defaultMSD returns the experiment `msd` with its default settings.
func defaultMSD() *steadyMSD {
	m := &steadyMSD{lmsSettings{Participants: 7, StepSize: 0.02, Runs: 48, Window: 20_000}}
	for k := range 20 {
		r, w := make([]float64, 4), make([]float64, 4)
		for j := range r {
			r[j] = 0.6 + 0.1*float64((k+j)%5)
			w[j] = 1 + 0.3*math.Cos(float64(k+j))
		}
		m.LocalSteps = append(m.LocalSteps, 1+k%5)
		m.BatchSizes = append(m.BatchSizes, 1+k%3)
		m.Regressors = append(m.Regressors, r)
		m.NoiseVar = append(m.NoiseVar, 0.05*float64(1+k%4))
		m.Optima = append(m.Optima, w)
	}
	return m
}

// About implements Experiment.
func (m *steadyMSD) About() About {
	return About{"msd", "The limiting error of federated averaging can be computed from the data statistics and the " +
		"tuning parameters of each agent.",
		"ch5 problem 5.3"}
}

// Run implements Experiment. It compares the measured error with the exact error, and checks that the first-order
// approximation deviates in proportion to the step size μ.
func (m *steadyMSD) Run(ctx context.Context, o Options) (*Report, error) {
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("msd: %w", err)
	}
	problem := m.theory(true)
	exact, err := problem.SteadyState()
	if err != nil {
		return nil, fmt.Errorf("msd: %w", err)
	}
	first, err := problem.FirstOrder()
	if err != nil {
		return nil, fmt.Errorf("msd: %w", err)
	}
	t, err := simulateSteadyState(ctx, m.experiment(o, true, burnInRounds(exact)), m.problem(), nil,
		burnInRounds(exact))
	if err != nil {
		return nil, fmt.Errorf("msd: %w", err)
	}
	measured := t.average(msd)
	r := &Report{About: m.About()}
	r.Values.Set("simulated", measured.mean)
	r.Values.Set("simulated_ci95", measured.halfWidth)
	r.Values.Set("exact", exact.MSD)
	r.Values.Set("first_order", first)
	r.find(Finding{What: "lim E‖w⁰ − w_i‖², exact in μ", Measured: measured.String(),
		Expected: fmt.Sprintf("%.4g", exact.MSD),
		Holds:    measured.agrees(exact.MSD, 0.1)})
	if err := m.firstOrder(r, problem, relativeError(exact.MSD, first)); err != nil {
		return nil, err
	}
	curve, err := problem.Curve(make([]float64, len(m.Optima[0])), t.last())
	if err != nil {
		return nil, fmt.Errorf("msd: %w", err)
	}
	r.figure("msd", plot.Figure{Title: "Federated averaging of heterogeneous agents", X: plot.Axis{Label: "round i"},
		Y:      plot.Axis{Label: "E‖w⁰ − w_i‖²", Log: true},
		Curves: []plot.Curve{t.curve("simulated", msd), t.predicted("exact recursion", curve)}})
	return r, nil
}

// firstOrder adds a finding that the error of the first-order approximation is proportional to the step size μ when μ
// is small.
func (m *steadyMSD) firstOrder(r *Report, problem theory.LMS, gap float64) error {
	gaps := []float64{gap}
	for range 2 {
		problem.StepSize /= 16
		exact, err := problem.SteadyState()
		if err != nil {
			return fmt.Errorf("msd: at μ = %v: %w", problem.StepSize, err)
		}
		first, err := problem.FirstOrder()
		if err != nil {
			return fmt.Errorf("msd: at μ = %v: %w", problem.StepSize, err)
		}
		gaps = append(gaps, relativeError(exact.MSD, first))
	}
	small, smaller := math.Abs(gaps[1]), math.Abs(gaps[2])
	r.find(Finding{What: fmt.Sprintf("error of the first-order expression at μ = %.4g, μ/16 and μ/256", m.StepSize),
		Measured: fmt.Sprintf("%.2g %%, %.2g %% and %.2g %%", 100*gaps[0], 100*gaps[1], 100*gaps[2]),
		Expected: "decreases in proportion to μ for small μ, within a factor of 2", Holds: smaller > small/32 &&
			smaller < small/8 || smaller < 1e-9})
	return nil
}

// relativeError returns (value − approximation)/approximation, or 0 if the two numbers are equal.
func relativeError(value, approximation float64) float64 {
	if value == approximation {
		return 0
	}
	return value/approximation - 1
}
