package reproduce

import (
	"fmt"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/lab/plot"
	"github.com/fedmesh/fedmesh/lab/theory"
)

// judge stores the measurements of a case in the report and compares them with theory.
func (s *saddleExperiment) judge(r *Report, c *saddleCase, lowest float64) {
	escape, lambda := average(c.escapeRounds), average(c.lambda)
	risk, gradient := measured(c.Steady("risk", s.Steady)), measured(c.Steady("gradient_norm2", s.Steady))
	for _, v := range []struct {
		what string
		estimate
	}{{"escape", escape}, {"final_J", risk}, {"gradnorm2", gradient}, {"lambda_min", lambda}} {
		r.Values.Set(c.name(v.what), v.mean)
		r.Values.Set(c.name(v.what+"_ci95"), v.halfWidth)
	}
	a := s.theory(c.saddleStart, c.participants)
	saddle := a.SmallestEigenvalue(make([]float64, s.Hidden*(len(s.Means[0])+1)))
	if !c.isOffSaddle && !c.noise {
		moved := slices.ContainsFunc(c.Final,
			func(w []float64) bool { return slices.ContainsFunc(w, func(v float64) bool { return v != 0 }) })
		r.find(Finding{What: c.String() + ": J at the end", Measured: fmt.Sprintf("%.6g", risk.mean),
			Expected: "ln 2, with all parameters still exactly 0, because all gradients are 0", Holds: !moved &&
				math.Abs(risk.mean-math.Ln2) < 1e-9})
		return
	}
	excess, norm2 := a.Steady()
	predicted := a.Escape((math.Ln2+lowest)/2, s.Rounds)
	if c.isOffSaddle {
		predicted = a.Descent(s.start(c.saddleStart), (math.Ln2+lowest)/2, s.Rounds)
	}
	r.Values.Set(c.name("escape_theory"), float64(predicted))
	r.Values.Set(c.name("final_J_theory"), lowest+excess)
	r.Values.Set(c.name("gradnorm2_theory"), norm2)
	gone := len(c.escapeRounds) - len(slices.DeleteFunc(slices.Clone(c.escapeRounds),
		func(i float64) bool { return !math.IsInf(i, 1) }))
	r.find(Finding{What: c.String() + ": round of the escape",
		Measured: fmt.Sprintf("%v, in %d of %d runs", escape, gone, len(c.escapeRounds)),
		Expected: fmt.Sprintf("about %d, in all runs", predicted), Holds: agreesWithinShare(escape, float64(predicted),
			0.1)})
	r.find(Finding{What: fmt.Sprintf("%v: J − J* from round %d on", c, s.Steady),
		Measured: estimate{risk.mean - lowest, risk.halfWidth}.String(),
		Expected: fmt.Sprintf("about %.3g, to first order in μ; %.2g at the saddle", excess, math.Ln2-lowest),
		Holds:    agreesWithinShare(estimate{risk.mean - lowest, risk.halfWidth}, excess, 0.25)})
	r.find(Finding{What: fmt.Sprintf("%v: ‖∇J‖² from round %d on", c, s.Steady), Measured: gradient.String(),
		Expected: fmt.Sprintf("about %.3g, to first order in μ", norm2), Holds: agreesWithinShare(gradient, norm2,
			0.25)})
	r.find(Finding{What: c.String() + ": λ_min(∇²J) at the end, in the worst run",
		Measured: fmt.Sprintf("%.3g", slices.Min(c.lambda)),
		Expected: fmt.Sprintf("≥ %.3g; %.3g at the saddle", s.Tau*saddle, saddle),
		Holds:    slices.Min(c.lambda) >= s.Tau*saddle})
}

// average returns the mean over the runs. average returns NaN if a run is not finite.
func average(runs []float64) estimate {
	mean, half := theory.Interval95(runs)
	if math.IsInf(mean, 0) {
		return estimate{math.NaN(), math.NaN()}
	}
	return estimate{mean, half}
}

// agreesWithinShare reports whether a prediction agrees with the measurement. The prediction itself may have a relative
// error of share.
func agreesWithinShare(e estimate, prediction, share float64) bool {
	return math.Abs(e.mean-prediction) <= refutationFactor*e.halfWidth+share*math.Abs(prediction)
}

// plots adds Figs. 1 and 2 of the paper for the initial models from which the training moves away.
func (s *saddleExperiment) plots(r *Report, cases []*saddleCase, lowest float64) {
	for _, start := range saddleStarts {
		if !start.isOffSaddle && !start.noise {
			continue
		}
		risk := plot.Figure{Title: "The aggregate risk, " + start.what, X: plot.Axis{Label: "round i"},
			Y: plot.Axis{Label: "J(w_i)"}}
		gradient := plot.Figure{Title: "The gradient, " + start.what + "; dashed: theory",
			X: plot.Axis{Label: "round i"}, Y: plot.Axis{Label: "‖∇J(w_i)‖²", Log: true}}
		for _, c := range cases {
			if c.saddleStart != start {
				continue
			}
			name := fmt.Sprintf("L = %d of %d", c.participants, len(s.Means))
			risk.Curves = append(risk.Curves, s.curve(c, name, "risk"))
			norm := s.curve(c, name, "gradient_norm2")
			norm.Low, norm.High = nil, nil // omit the band, which would be as wide as the curve is high
			_, norm2 := s.theory(start, c.participants).Steady()
			gradient.Curves = append(gradient.Curves, norm, plot.Curve{
				X: []float64{float64(s.Steady), float64(s.Rounds)}, Y: []float64{norm2, norm2}, IsPrediction: true})
		}
		risk.Curves = append(risk.Curves,
			plot.Curve{Name: "J*", X: []float64{0, float64(s.Rounds)}, Y: []float64{lowest, lowest},
				IsPrediction: true})
		r.figure("saddle-risk-"+start.key, risk)
		r.figure("saddle-gradient-"+start.key, gradient)
	}
}

// curve returns the mean of a metric over the runs with its band, thinned out for plotting.
func (s *saddleExperiment) curve(c *saddleCase, name, metric string) plot.Curve {
	m, out := c.Metric(metric), plot.Curve{Name: name}
	for _, i := range plottedRecords(len(c.Rounds)) {
		estimate{m.Mean[i], m.CI95[i]}.appendTo(&out, float64(c.Rounds[i]))
	}
	return out
}
