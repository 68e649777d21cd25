package learner

import (
	"math"
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/spec"
)

// drawNoise fills v with random noise of the configured distribution. A Laplace variable with the variance 2b² is b
// times the difference of two exponential variables.
func drawNoise[T Float](n spec.GradientNoise, v []T, rng *rand.Rand) {
	if n.Law == spec.NoiseLaplace {
		b := math.Sqrt(n.Variance / 2)
		for i := range v {
			up := rng.ExpFloat64()
			v[i] = T(b * (up - rng.ExpFloat64()))
		}
		return
	}
	sigma := math.Sqrt(n.Variance)
	for i := range v {
		v[i] = T(sigma * rng.NormFloat64())
	}
}
