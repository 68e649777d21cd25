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

// refutationFactor is the error, in half-widths of the 95 % interval, beyond which a claim is refuted: about five
// standard errors. All experiments make about two hundred comparisons; with a factor of 1, about ten would fail by
// chance.
const refutationFactor = 2.5

// agrees reports whether the prediction lies within refutationFactor half-widths of the mean, and the half-width is at
// most resolution·prediction (any half-width if resolution is infinite). A deterministic measurement has a half-width
// of 0 and may differ from the prediction by rounding.
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
