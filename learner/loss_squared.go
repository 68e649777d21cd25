package learner

// squaredLoss implements the loss ½(γ − z)² of the output z for the target γ (lecture, equations (36)–(37)).
// linearModel.takeShortRowStep contains an inlined copy of this loss.
type squaredLoss[T Float] struct{ regressionLoss[T] }

func (squaredLoss[T]) Risk(delta, z []T, y T) float64 {
	miss := float64(z[0]) - float64(y)
	if delta != nil {
		delta[0] = T(miss)
	}
	return 0.5 * miss * miss
}

// unhalvedSquaredLoss implements the loss (γ − z)² of the output z for the target γ, without the factor ½, as in the
// FedDec paper.
type unhalvedSquaredLoss[T Float] struct{ regressionLoss[T] }

func (unhalvedSquaredLoss[T]) Risk(delta, z []T, y T) float64 {
	miss := float64(z[0]) - float64(y)
	if delta != nil {
		delta[0] = T(2 * miss)
	}
	return miss * miss
}
