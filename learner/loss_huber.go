package learner

import "math"

// huberLoss implements the Huber loss of the residual r = z − γ between the output z and the target γ. The loss is ½r²
// for |r| ≤ δ, and δ(|r| − δ/2) for larger residuals (Huber 1964). The derivative for an outlier is therefore at most
// δ.
type huberLoss[T Float] struct {
	regressionLoss[T]
	delta float64
}

func (h huberLoss[T]) Risk(delta, z []T, y T) float64 {
	miss := float64(z[0]) - float64(y)
	far := math.Abs(miss) > h.delta
	if delta != nil {
		delta[0] = T(miss)
		if far {
			delta[0] = T(math.Copysign(h.delta, miss))
		}
	}
	if far {
		return h.delta * (math.Abs(miss) - 0.5*h.delta)
	}
	return 0.5 * miss * miss
}
