package learner

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/spec"
)

// Noise is the perturbation added to a gradient (2nd-order (8)). The zero value adds none.
type Noise struct {
	Law      spec.NoiseLaw
	Variance float64 // of each coordinate, for either law; 0 = no perturbation
}

// Validate reports a law that does not exist or a variance that no law has.
func (n Noise) Validate() error {
	switch n.Law {
	case spec.NoiseGaussian, spec.NoiseLaplace:
	case spec.NoiseNone, "":
		if n.Variance != 0 {
			return fmt.Errorf("noise: variance is %v without a law; want gaussian or laplace", n.Variance)
		}
	default:
		return fmt.Errorf("noise: law: %w", n.Law.Validate())
	}
	if !(n.Variance >= 0) || !finite(n.Variance) {
		return fmt.Errorf("noise: variance is %v; it must be finite and not negative", n.Variance)
	}
	return nil
}

// fill draws every coordinate of v, the first one first. A Laplace variable of variance 2b² is b times the difference of
// two exponential ones, drawn in this order.
func fill[T Float](n Noise, v []T, rng *rand.Rand) {
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
