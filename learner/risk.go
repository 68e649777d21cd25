package learner

import (
	"fmt"
	"math"

	"github.com/fedmesh/fedmesh/spec"
)

// sampleRisk returns the risk of one sample with outputs z and target y and, when delta is not nil, fills it with the
// derivatives by z. No margin is so large that an exponential overflows.
func sampleRisk[T Float](r spec.Risk, delta, z []T, y T) float64 {
	switch r {
	case spec.RiskSquared:
		miss := float64(z[0]) - float64(y)
		if delta != nil {
			delta[0] = T(miss)
		}
		return 0.5 * miss * miss
	case spec.RiskLogistic:
		margin := float64(y) * float64(z[0])
		e := math.Exp(-math.Abs(margin))
		if delta != nil {
			wrong := 1 / (1 + e) // the probability of the other class
			if margin > 0 {
				wrong *= e
			}
			delta[0] = T(-float64(y) * wrong)
		}
		return max(-margin, 0) + math.Log1p(e)
	case spec.RiskFullSquared:
		miss := float64(z[0]) - float64(y)
		if delta != nil {
			delta[0] = T(2 * miss)
		}
		return miss * miss
	}
	return softmaxRisk(delta, z, y)
}

func softmaxRisk[T Float](delta, z []T, y T) float64 {
	// before the conversion: what it makes of NaN differs between processors
	if known := y >= 0 && y < T(len(z)); !known {
		panic(fmt.Sprintf("learner: label %v for %d classes; Samples.MapLabels checks labels", y, len(z)))
	}
	class := int(y)
	top := float64(z[0])
	for _, v := range z[1:] {
		top = max(top, float64(v)) // the builtin keeps a NaN, which must reach the risk
	}
	sum := 0.0
	for _, v := range z {
		sum += math.Exp(float64(v) - top)
	}
	if delta != nil {
		for c, v := range z {
			delta[c] = T(math.Exp(float64(v)-top) / sum)
		}
		delta[class]--
	}
	return math.Log(sum) + (top - float64(z[class])) // in this order: ln sum must not drown in a large top
}
