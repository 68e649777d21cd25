package learner

// squaredLoss is ½(γ − z)² (lecture (36)–(37)). linear.step writes it out for short rows.
type squaredLoss[T Float] struct{ regressionLoss[T] }

func (squaredLoss[T]) Risk(delta, z []T, y T) float64 {
	miss := float64(z[0]) - float64(y)
	if delta != nil {
		delta[0] = T(miss)
	}
	return 0.5 * miss * miss
}

// unhalvedSquaredLoss is (γ − z)², a row of the regression (1/M)‖Xz − Y‖² of feddec.
type unhalvedSquaredLoss[T Float] struct{ regressionLoss[T] }

func (unhalvedSquaredLoss[T]) Risk(delta, z []T, y T) float64 {
	miss := float64(z[0]) - float64(y)
	if delta != nil {
		delta[0] = T(2 * miss)
	}
	return miss * miss
}
