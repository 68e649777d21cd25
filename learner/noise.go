package learner

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// NoiseLaw is the distribution of the perturbation v of 2nd-order (8).
type NoiseLaw uint8

// The laws, both of mean zero and independent over the coordinates.
const (
	Gaussian NoiseLaw = iota
	Laplace
)

// String is the name of the law in configuration and logs.
func (l NoiseLaw) String() string {
	switch l {
	case Gaussian:
		return "gaussian"
	case Laplace:
		return "laplace"
	}
	return fmt.Sprintf("NoiseLaw(%d)", uint8(l))
}

// Noise is the perturbation added to a gradient (2nd-order (8)). The zero value adds none.
type Noise struct {
	Law      NoiseLaw
	Variance float64 // of each coordinate, for either law; 0 = no perturbation
}

// Validate reports a law that does not exist or a variance that no law has.
func (n Noise) Validate() error {
	if n.Law > Laplace {
		return fmt.Errorf("noise: law is %v; allowed are gaussian and laplace", n.Law)
	}
	if !(n.Variance >= 0) || !finite(n.Variance) {
		return fmt.Errorf("noise: variance is %v; it must be finite and not negative", n.Variance)
	}
	return nil
}

// fill draws every coordinate of v, the first one first. A Laplace variable of variance 2b² is b times the difference of
// two exponential ones, drawn in this order.
func fill[T Float](n Noise, v []T, rng *rand.Rand) {
	if n.Law == Laplace {
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
