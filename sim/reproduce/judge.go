package reproduce

import (
	"fmt"
	"math"
)

// estimate is a measured mean with the half width of its 95 % interval.
type estimate struct{ mean, half float64 }

func (e estimate) String() string { return fmt.Sprintf("%.4g ± %.2g", e.mean, e.half) }

// agrees reports that a prediction lies within twice the interval, about four standard errors, and that the interval is
// narrow enough to say something: half width at most resolution·prediction. A report makes dozens of such comparisons, of
// which one in twenty would fail by chance on the interval itself.
func (e estimate) agrees(prediction, resolution float64) bool {
	return math.Abs(e.mean-prediction) <= 2*e.half && e.half <= resolution*math.Abs(prediction)
}

// compare sets key, key_theory and key_ci95, and adds the finding that measurement and prediction agree.
func (r *Report) compare(key, what string, e estimate, prediction, resolution float64) {
	r.Values.Set(key, e.mean)
	r.Values.Set(key+"_theory", prediction)
	r.Values.Set(key+"_ci95", e.half)
	r.find(Finding{What: what, Measured: e.String(), Expected: fmt.Sprintf("%.4g", prediction), Holds: e.agrees(prediction, resolution)})
}
