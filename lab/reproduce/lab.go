package reproduce

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/fedmesh/fedmesh/lab/plot"
	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/lab/theory"
)

// LabExperiment reproduces Lab #1 of the lecture. It compares the steady-state error of each case, and ratios between
// cases, with exact values.
type LabExperiment struct {
	Subject      About      `json:"-"`
	Inputs       int        `json:"inputs"`        // number of features (M)
	RegressorVar float64    `json:"regressor_var"` // variance σ_h² of the regressors
	NoiseVar     float64    `json:"noise_var"`     // variance σ_v² of the observation noise
	StepSize     float64    `json:"step_size"`     // step size μ
	BatchSize    int        `json:"batch_size"`
	Cases        []LabCase  `json:"cases"`
	Claims       []LabClaim `json:"claims"`
	Runs         int        `json:"runs"`   // number of runs per case, each with a different random problem
	Window       int        `json:"window"` // number of rounds per run over which the steady-state error is averaged
}

// LabCase is one case of the experiment: the numbers of agents, participants and local steps, and the variance σ_w² of
// the agents' optima around their mean.
type LabCase struct {
	Agents       int     `json:"agents"`
	Participants int     `json:"participants"`
	LocalSteps   int     `json:"local_steps"`
	Spread       float64 `json:"spread"`
}

// Key returns the name of the case in reports, such as "K100_L10_E10_sw0.1".
func (c LabCase) Key() string {
	return fmt.Sprintf("K%d_L%d_E%d_sw%s", c.Agents, c.Participants, c.LocalSteps,
		strconv.FormatFloat(c.Spread, 'g', -1, 64))
}

// seed derives a seed from the case, so that a case has the same seed in every experiment.
func (c LabCase) seed(seed uint64) uint64 {
	h := fnv.New64a()
	h.Write([]byte(c.Key()))
	return data.Mix(seed, h.Sum64())
}

func (c LabCase) String() string {
	return fmt.Sprintf("K = %d, L = %d, E = %d, σ_w² = %v", c.Agents, c.Participants, c.LocalSteps, c.Spread)
}

// short returns a text with those settings of c that differ between the cases.
func (l *LabExperiment) short(c LabCase) string {
	var parts []string
	for _, p := range []struct {
		name string
		of   func(LabCase) float64
	}{
		{"K", func(c LabCase) float64 { return float64(c.Agents) }},
		{"L", func(c LabCase) float64 { return float64(c.Participants) }},
		{"E", func(c LabCase) float64 { return float64(c.LocalSteps) }},
		{"σ_w²", func(c LabCase) float64 { return c.Spread }},
	} {
		if slices.ContainsFunc(l.Cases, func(o LabCase) bool { return p.of(o) != p.of(c) }) {
			parts = append(parts, fmt.Sprintf("%s = %v", p.name, p.of(c)))
		}
	}
	return strings.Join(parts, ", ")
}

// LabClaim compares the errors of two cases, given by their indices. Their ratio must equal the exact ratio and, if
// MustBeBig is true, exceed 1.
type LabClaim struct {
	NumeratorCase   int  `json:"case"`
	DenominatorCase int  `json:"to"`
	MustBeBig       bool `json:"must_be_big"`
}

// About implements Experiment.
func (l *LabExperiment) About() About { return l.Subject }

// Run implements Experiment.
func (l *LabExperiment) Run(ctx context.Context, o Options) (*Report, error) {
	if err := l.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", l.Subject.ID, err)
	}
	r := &Report{About: l.Subject}
	figure := plot.Figure{Title: "Mean-square deviation; dashed: theory", X: plot.Axis{Label: "round i"},
		Y: plot.Axis{Label: "E‖w⁰ − w_i‖²", Log: true}}
	measured := make([]estimate, len(l.Cases))
	for i, c := range l.Cases {
		exact := l.theory(c)
		if math.IsInf(exact.MSD(), 1) {
			return nil, fmt.Errorf("%s: %v: %w", l.Subject.ID, c, theory.ErrUnstable)
		}
		t, err := simulateSteadyState(ctx, l.experiment(c, o), l.problem(c), nil, l.burnInRounds(exact))
		if err != nil {
			return nil, fmt.Errorf("%s: %v: %w", l.Subject.ID, c, err)
		}
		measured[i] = t.average(msd)
		r.compare(c.Key(), c.String()+": steady-state E‖w⁰ − w‖²", measured[i], exact.MSD(), 0.2)
		r.Values.Set(c.Key()+"_first_order", exact.FirstOrder())
		r.Values.Set(c.Key()+"_bound", exact.Bound())
		figure.Curves = append(figure.Curves, t.curve(l.short(c), msd),
			t.predicted("", exact.Curve(l.start(c), t.last())))
	}
	for _, c := range l.Claims {
		r.find(l.judge(c, measured))
	}
	r.figure(l.Subject.ID, figure)
	return r, nil
}

// validate returns an error if a setting is invalid. Settings that the simulation validates are not checked here.
func (l *LabExperiment) validate() error {
	if len(l.Cases) == 0 || l.Inputs < 1 || l.RegressorVar <= 0 || l.NoiseVar <= 0 || l.StepSize <= 0 ||
		l.BatchSize < 1 || l.Runs < 2 || l.Window < 1 {
		return fmt.Errorf("%d cases, %d inputs, variances %v and %v, step size %v, batch size %d, %d runs, window of "+
			"%d: want positive values and at least two runs",
			len(l.Cases), l.Inputs, l.RegressorVar, l.NoiseVar, l.StepSize, l.BatchSize, l.Runs, l.Window)
	}
	for _, c := range l.Cases {
		if c.Participants < 1 || c.Participants > c.Agents || c.LocalSteps < 1 || c.Spread < 0 {
			return fmt.Errorf("%v: want 1 ≤ L ≤ K, E ≥ 1 and σ_w² ≥ 0", c)
		}
	}
	for _, c := range l.Claims {
		if min(c.NumeratorCase, c.DenominatorCase) < 0 || max(c.NumeratorCase, c.DenominatorCase) >= len(l.Cases) {
			return fmt.Errorf("a claim compares the cases %d and %d, but the cases are 0 to %d", c.NumeratorCase,
				c.DenominatorCase,
				len(l.Cases)-1)
		}
	}
	return nil
}

func (l *LabExperiment) theory(c LabCase) theory.Lab {
	return theory.Lab{Inputs: l.Inputs, RegressorVar: l.RegressorVar, NoiseVar: l.NoiseVar, StepSize: l.StepSize,
		BatchSize: l.BatchSize,
		Agents:    c.Agents, Participants: c.Participants, LocalSteps: c.LocalSteps, Spread: c.Spread}
}

// start returns the expected squared error E‖w⁰ − w_0‖² of the initial model w_0 = 0. The optimum w⁰ is the mean of K
// random optima around the vector 𝟙 of ones.
func (l *LabExperiment) start(c LabCase) float64 {
	return float64(l.Inputs) * (1 + c.Spread/float64(c.Agents))
}

// burnInRounds returns the number of rounds until the error differs from the steady-state error by less than a
// thousandth.
func (l *LabExperiment) burnInRounds(exact theory.Lab) int {
	left, steady := l.start(LabCase{Agents: exact.Agents, Spread: exact.Spread}), exact.MSD()
	away := 1000 * math.Abs(left-steady) / steady
	return 1 + int(max(0, math.Ceil(-math.Log(away)/math.Log(exact.Gain()))))
}

func (l *LabExperiment) experiment(c LabCase, o Options) sim.Experiment {
	e := sim.Default()
	e.Seed, e.Runs = c.seed(o.Seed), o.fullOrQuickCount(l.Runs, 24)
	e.Agents, e.Participants.Count = c.Agents, c.Participants
	e.LocalSteps, e.BatchSize = sim.Each(float64(c.LocalSteps)), sim.Each(float64(l.BatchSize))
	e.StepSize.Constant = l.StepSize
	e.Rounds = l.burnInRounds(l.theory(c)) + o.fullOrQuickCount(l.Window, 500)
	return e
}

func (l *LabExperiment) problem(c LabCase) data.Linear {
	return data.Linear{Inputs: l.Inputs, Regressors: [][]float64{{l.RegressorVar}}, Noise: []float64{l.NoiseVar},
		Centre: []float64{1}, Spread: c.Spread}
}

// judge compares the ratio of two measured errors with the exact ratio.
func (l *LabExperiment) judge(c LabClaim, measured []estimate) Finding {
	a, b := l.theory(l.Cases[c.NumeratorCase]), l.theory(l.Cases[c.DenominatorCase])
	got, want := ratio(measured[c.NumeratorCase], measured[c.DenominatorCase]), a.MSD()/b.MSD()
	f := Finding{What: fmt.Sprintf("%v, over %v", l.Cases[c.NumeratorCase], l.Cases[c.DenominatorCase]),
		Measured: "×" + got.String(),
		Holds:    got.agrees(want, 0.3)}
	f.Expected = fmt.Sprintf("×%.4g (to first order in μ ×%.4g)", want, a.FirstOrder()/b.FirstOrder())
	if c.MustBeBig {
		f.Expected += ", above 1"
		f.Holds = f.Holds && got.mean-got.halfWidth > 1
	}
	return f
}

// ratio returns the ratio of two independent estimates.
func ratio(a, b estimate) estimate {
	q := a.mean / b.mean
	return estimate{q, math.Abs(q) * math.Hypot(a.halfWidth/a.mean, b.halfWidth/b.mean)}
}
