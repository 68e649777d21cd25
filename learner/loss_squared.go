package learner

// squared is ½(γ − z)² (lecture (36)–(37)). linear.step writes it out for short rows.
type squared[T Float] struct{ regression[T] }

func (squared[T]) Risk(delta, z []T, y T) float64 {
	miss := float64(z[0]) - float64(y)
	if delta != nil {
		delta[0] = T(miss)
	}
	return 0.5 * miss * miss
}

// fullSquared is (γ − z)², a row of the regression (1/M)‖Xz − Y‖² of feddec.
type fullSquared[T Float] struct{ regression[T] }

func (fullSquared[T]) Risk(delta, z []T, y T) float64 {
	miss := float64(z[0]) - float64(y)
	if delta != nil {
		delta[0] = T(2 * miss)
	}
	return miss * miss
}
