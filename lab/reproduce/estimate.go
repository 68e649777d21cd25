package reproduce

import (
	"fmt"
	"math"

	"github.com/fedmesh/fedmesh/lab/sim"
)

// estimate is a measured mean with the half-width of its 95 % confidence interval.
type estimate struct{ mean, halfWidth float64 }

func measured(e sim.Estimate) estimate { return estimate{e.Mean, e.Half} }

func (e estimate) String() string { return fmt.Sprintf("%.4g ± %.2g", e.mean, e.halfWidth) }

// refutationFactor is the error beyond which a claim is refuted, in half-widths of the 95 % confidence interval.
// refutationFactor corresponds to about five standard errors. All experiments together make about two hundred
// comparisons. With a factor of 1, about ten comparisons would fail by chance.
const refutationFactor = 2.5

// agrees reports whether the prediction lies within refutationFactor half-widths of the mean. The half-width must be at
// most resolution·prediction; an infinite resolution allows any half-width. The half-width of a deterministic
// measurement is 0. In this case, the prediction may differ from the mean only by rounding errors.
func (e estimate) agrees(prediction, resolution float64) bool {
	rounding := 1e-9*math.Abs(prediction) + 1e-15
	narrow := math.IsInf(resolution, 1) || e.halfWidth <= resolution*math.Abs(prediction)+rounding
	return math.Abs(e.mean-prediction) <= refutationFactor*e.halfWidth+rounding && narrow
}

// compare stores the measurement, its prediction and its half-width under key, key_theory and key_ci95, and adds a
// finding on whether measurement and prediction agree.
func (r *Report) compare(key, what string, e estimate, prediction, resolution float64) {
	r.Values.Set(key, e.mean)
	r.Values.Set(key+"_theory", prediction)
	r.Values.Set(key+"_ci95", e.halfWidth)
	r.find(Finding{What: what, Measured: e.String(), Expected: fmt.Sprintf("%.4g", prediction),
		Holds: e.agrees(prediction, resolution)})
}
