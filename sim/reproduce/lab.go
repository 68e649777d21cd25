package reproduce

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"strconv"

	"github.com/fedmesh/fedmesh/sim"
	"github.com/fedmesh/fedmesh/sim/data"
	"github.com/fedmesh/fedmesh/sim/plot"
	"github.com/fedmesh/fedmesh/sim/theory"
)

// Lab is lecture Lab #1 at several settings: the steady-state error of each against its exact value, and what the ratios
// between them say.
type Lab struct {
	Subject About
	Setting theory.Lab // of all cases but for what a case sets
	Cases   []LabCase
	Claims  []LabClaim
	Runs    int // of each case, each on a problem of its own
	Window  int // rounds averaged in each run, once steady
}

// LabCase is K, L, E and σ_w².
type LabCase struct {
	Agents, Participants, LocalSteps int
	Spread                           float64
}

// Key names the case among the values: "K100_L10_E10_sw0.1".
func (c LabCase) Key() string {
	return fmt.Sprintf("K%d_L%d_E%d_sw%s", c.Agents, c.Participants, c.LocalSteps, strconv.FormatFloat(c.Spread, 'g', -1, 64))
}

// seed makes the cases of an experiment independent, and a case the same in every experiment.
func (c LabCase) seed(seed uint64) uint64 {
	h := fnv.New64a()
	h.Write([]byte(c.Key()))
	return data.Mix(seed, h.Sum64())
}

func (c LabCase) String() string {
	return fmt.Sprintf("K = %d, L = %d, E = %d, σ_w² = %v", c.Agents, c.Participants, c.LocalSteps, c.Spread)
}

// LabClaim compares the errors of two cases, by their places in the list. Their ratio must be the exact one, and the
// first larger where the claim is that something hurts.
type LabClaim struct {
	What      string
	Case, To  int
	MustBeBig bool
}

// About implements Experiment.
func (l *Lab) About() About { return l.Subject }

// Run implements Experiment.
func (l *Lab) Run(ctx context.Context, o Options) (*Report, error) {
	r := &Report{About: l.Subject}
	figure := plot.Figure{Title: "Mean-square deviation", X: plot.Axis{Label: "round i"}, Y: plot.Axis{Label: "E‖w⁰ − w_i‖²", Log: true}}
	measured := make([]estimate, len(l.Cases))
	for i, c := range l.Cases {
		exact := l.theory(c)
		if math.IsInf(exact.MSD(), 1) {
			return nil, fmt.Errorf("%s: %v: %w", l.Subject.ID, c, theory.ErrUnstable)
		}
		t, err := settle(ctx, l.experiment(c, o), l.problem(c), nil, l.burn(exact))
		if err != nil {
			return nil, fmt.Errorf("%s: %v: %w", l.Subject.ID, c, err)
		}
		measured[i] = t.average(msd)
		r.compare(c.Key(), c.String()+": steady-state E‖w⁰ − w‖²", measured[i], exact.MSD(), 0.2)
		r.Values.Set(c.Key()+"_first_order", exact.FirstOrder())
		r.Values.Set(c.Key()+"_bound", exact.Bound())
		figure.Curves = append(figure.Curves, t.curve(c.String(), msd),
			t.predicted(c.String()+", theory", exact.Curve(l.start(c), t.last())))
	}
	for _, c := range l.Claims {
		r.find(l.judge(c, measured))
	}
	r.figure(l.Subject.ID, figure)
	return r, nil
}

func (l *Lab) theory(c LabCase) theory.Lab {
	t := l.Setting
	t.Agents, t.Participants, t.LocalSteps, t.Spread = c.Agents, c.Participants, c.LocalSteps, c.Spread
	return t
}

// start is E‖w⁰ − w_0‖² for w_0 = 0 and w⁰ the mean of K optima around 𝟙.
func (l *Lab) start(c LabCase) float64 {
	return float64(l.Setting.Inputs) * (1 + c.Spread/float64(c.Agents))
}

// burn is how many rounds it takes until the start has left a thousandth of the steady-state error.
func (l *Lab) burn(exact theory.Lab) int {
	left, steady := l.start(LabCase{Agents: exact.Agents, Spread: exact.Spread}), exact.MSD()
	gain := exact.Gain()
	return 1 + int(math.Ceil(math.Log(steady/left/1000)/math.Log(gain)))
}

func (l *Lab) experiment(c LabCase, o Options) sim.Experiment {
	e := sim.Default()
	e.Seed, e.Runs = c.seed(o.Seed), o.size(l.Runs, 24)
	e.Agents, e.Participants = c.Agents, c.Participants
	e.LocalSteps, e.BatchSize = sim.Each(float64(c.LocalSteps)), sim.Each(float64(l.Setting.BatchSize))
	e.StepSize.Constant = l.Setting.StepSize
	e.Rounds = l.burn(l.theory(c)) + o.size(l.Window, 500)
	return e
}

func (l *Lab) problem(c LabCase) data.Linear {
	s := l.Setting
	return data.Linear{Inputs: s.Inputs, Regressors: [][]float64{{s.RegressorVar}}, Noise: []float64{s.NoiseVar},
		Centre: []float64{1}, Spread: c.Spread}
}

// judge compares a ratio of measured errors with the exact one.
func (l *Lab) judge(c LabClaim, measured []estimate) Finding {
	a, b := l.theory(l.Cases[c.Case]), l.theory(l.Cases[c.To])
	got, want := ratio(measured[c.Case], measured[c.To]), a.MSD()/b.MSD()
	f := Finding{What: c.What, Measured: "×" + got.String(), Holds: got.agrees(want, 0.3)}
	f.Expected = fmt.Sprintf("×%.4g (to first order in μ ×%.4g)", want, a.FirstOrder()/b.FirstOrder())
	if c.MustBeBig {
		f.Expected += ", above 1"
		f.Holds = f.Holds && got.mean-got.half > 1
	}
	return f
}

// ratio of two independent estimates.
func ratio(a, b estimate) estimate {
	q := a.mean / b.mean
	return estimate{q, math.Abs(q) * math.Hypot(a.half/a.mean, b.half/b.mean)}
}
