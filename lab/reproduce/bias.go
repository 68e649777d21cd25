package reproduce

import (
	"context"
	"fmt"
	"math"

	"github.com/fedmesh/fedmesh/lab/plot"
	"github.com/fedmesh/fedmesh/lab/theory"
)

// biasExperiment reproduces problem 5.1 in chapter 5 of Vlaski and Sayed: agents take different numbers of local steps
// E_k, with and without the factor 1/E_k of equation (5.26).
type biasExperiment struct{ lmsSettings }

// defaultBias returns the experiment `bias` with its default settings.
func defaultBias() *biasExperiment {
	b := &biasExperiment{lmsSettings{Participants: 5, StepSize: 0.01, LocalSteps: []int{1, 1, 2, 2, 4, 4, 8, 8, 16,
		16}, Runs: 48,
		Window: 20_000}}
	for k := range 10 {
		x := float64(k)
		b.BatchSizes = append(b.BatchSizes, 1)
		b.Regressors = append(b.Regressors, []float64{0.5 + 0.1*x, 1.5 - 0.1*x})
		b.NoiseVar = append(b.NoiseVar, 0.01)
		b.Optima = append(b.Optima, []float64{1 + 0.2*x, 2 - x*x/90})
	}
	return b
}

// About implements Experiment.
func (b *biasExperiment) About() About {
	return About{"bias", "Without the factor 1/E_k of (5.26), federated averaging converges to the minimiser of Σ " +
		"E_k J_k instead of Σ J_k.", "ch5 problem 5.1"}
}

// Run implements Experiment. It averages the models over rounds and runs and compares the average with its exact limit.
// For a finite step size this limit differs slightly from the minimiser.
func (b *biasExperiment) Run(ctx context.Context, o Options) (*Report, error) {
	if err := b.validate(); err != nil {
		return nil, fmt.Errorf("bias: %w", err)
	}
	r := &Report{About: b.About()}
	figure := plot.Figure{Title: "Limit of the average of the models", X: plot.Axis{Label: "first parameter"},
		Y: plot.Axis{Label: "second parameter"}}
	for _, normalized := range []bool{false, true} {
		problem := b.theory(normalized)
		exact, err := problem.SteadyState()
		if err != nil {
			return nil, fmt.Errorf("bias: %w", err)
		}
		t, err := simulateSteadyState(ctx, b.experiment(o, normalized, burnInRounds(exact)), b.problem(), nil,
			burnInRounds(exact))
		if err != nil {
			return nil, fmt.Errorf("bias: %w", err)
		}
		l := meanModelLimit{name: "unnormalised", target: "argmin Σ E_k J_k", key: "unnormalised_to_sumEJ",
			at: t.mean(len(exact.Mean)), exact: exact.Mean,
			smallStepLimit: problem.SmallStepLimit()}
		if normalized {
			l.name, l.target, l.key = "normalised", "w⁰", "normalised_to_w0"
		}
		l.report(r, exact)
		figure.Curves = append(figure.Curves, l.points()...)
	}
	if len(b.Optima[0]) == 1 {
		figure.X.Label, figure.Y.Label = "the parameter", ""
	}
	r.figure("bias", figure)
	return r, nil
}

// meanModelLimit is the limit of the average model in three variants: measured, computed exactly for the step size of
// the experiment, and computed for a step size that approaches 0.
type meanModelLimit struct {
	name, target, key     string
	at                    []estimate
	exact, smallStepLimit []float64
}

// report adds the measured limit to the report. It checks that each coordinate agrees with the exact limit, and that
// the limit is close to the expected minimiser.
func (l *meanModelLimit) report(r *Report, exact theory.Steady) {
	distance, size := estimate{}, norm(l.exact)
	predicted, apart := 0.0, 0.0
	for j, e := range l.at {
		axis := fmt.Sprintf("%d", j)
		if j < 2 {
			axis = []string{"x", "y"}[j]
		}
		// The required resolution is relative to the norm of the whole limit. A coordinate that is 0 requires no
		// particular resolution.
		narrow := math.Inf(1)
		if l.exact[j] != 0 {
			narrow = 0.05 * size / math.Abs(l.exact[j])
		}
		r.compare(l.name+"_"+axis, fmt.Sprintf("%s, coordinate %s of the mean limit", l.name, axis), e, l.exact[j],
			narrow)
		distance.mean += (e.mean - l.smallStepLimit[j]) * (e.mean - l.smallStepLimit[j])
		distance.halfWidth += e.halfWidth * e.halfWidth
		predicted += (l.exact[j] - l.smallStepLimit[j]) * (l.exact[j] - l.smallStepLimit[j])
		apart += (l.smallStepLimit[j] - exact.Optimum[j]) * (l.smallStepLimit[j] - exact.Optimum[j])
	}
	distance = estimate{math.Sqrt(distance.mean), math.Sqrt(distance.halfWidth)}
	r.Values.Set(l.key, distance.mean)
	r.Values.Set(l.key+"_theory", math.Sqrt(predicted))
	r.Values.Set(l.key+"_ci95", distance.halfWidth)
	// A distance computed from a noisy measurement is never 0. Its error may be as large as the error of the
	// measurement.
	r.find(Finding{What: fmt.Sprintf("%s: distance of the mean limit from %s", l.name, l.target),
		Measured: distance.String(),
		Expected: fmt.Sprintf("%.4g with this step size", math.Sqrt(predicted)),
		Holds:    math.Abs(distance.mean-math.Sqrt(predicted)) <= refutationFactor*distance.halfWidth})
	if math.Sqrt(apart) > 1e-9*norm(exact.Optimum) { // the minimisers differ by more than rounding errors
		r.find(Finding{What: "distance of this limit from w⁰", Measured: fmt.Sprintf("%.4g", math.Sqrt(apart)),
			Expected: "more than three times the previous distance",
			Holds:    math.Sqrt(apart) > 3*distance.mean})
	}
}

// points returns the measured and the predicted limit as points of the first two coordinates. The second coordinate is
// 0 for a model with one parameter.
func (l *meanModelLimit) points() []plot.Curve {
	at, small := [2]float64{}, [2]float64{}
	for j := range min(2, len(l.at)) {
		at[j], small[j] = l.at[j].mean, l.smallStepLimit[j]
	}
	return []plot.Curve{
		{Name: l.name + ", measured", X: at[:1], Y: at[1:], MarksOnly: true},
		{Name: l.target, X: small[:1], Y: small[1:], MarksOnly: true, IsPrediction: true},
	}
}

func norm(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x * x
	}
	return math.Sqrt(sum)
}
