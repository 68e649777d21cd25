package theory

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Interval95 returns the mean of independent values and the half-width of its 95 % confidence interval (Student's t
// distribution). The half-width is +Inf for a single value. The mean and the half-width are NaN if values is empty.
func Interval95(values []float64) (mean, half float64) {
	switch len(values) {
	case 0:
		return math.NaN(), math.NaN()
	case 1:
		return values[0], math.Inf(1)
	}
	mean, std := stat.MeanStdDev(values, nil)
	t := distuv.StudentsT{Sigma: 1, Nu: float64(len(values) - 1)}.Quantile(0.975)
	return mean, t * std / math.Sqrt(float64(len(values)))
}
