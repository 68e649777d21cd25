package reproduce

import (
	"fmt"
	"math"

	"github.com/fedmesh/fedmesh/lab/sim"
)

// estimate is a measured mean with the half width of its 95 % interval.
type estimate struct{ mean, halfWidth float64 }

func measured(e sim.Estimate) estimate { return estimate{e.Mean, e.Half} }

func (e estimate) String() string { return fmt.Sprintf("%.4g ± %.2g", e.mean, e.halfWidth) }

// refutationFactor is how many times the 95 % interval a measurement may be off before a claim counts as refuted: about
// five standard errors. All experiments together make some two hundred comparisons. On the interval itself ten of them
// would fail by chance.
const refutationFactor = 2.5

// agrees reports that a prediction is within reach of the measurement, and that the interval is narrow enough to say
// something: half width at most resolution·prediction, or anything if resolution is infinite. A measurement
// without chance has an interval of 0, and may be off by rounding.
func (e estimate) agrees(prediction, resolution float64) bool {
	rounding := 1e-9*math.Abs(prediction) + 1e-15
	narrow := math.IsInf(resolution, 1) || e.halfWidth <= resolution*math.Abs(prediction)+rounding
	return math.Abs(e.mean-prediction) <= refutationFactor*e.halfWidth+rounding && narrow
}

// compare sets key, key_theory and key_ci95, and adds the finding that measurement and prediction agree.
func (r *Report) compare(key, what string, e estimate, prediction, resolution float64) {
	r.Values.Set(key, e.mean)
	r.Values.Set(key+"_theory", prediction)
	r.Values.Set(key+"_ci95", e.halfWidth)
	r.find(Finding{What: what, Measured: e.String(), Expected: fmt.Sprintf("%.4g", prediction),
		Holds: e.agrees(prediction, resolution)})
}
