package learner

// StepDraw contains the random inputs of one local step. The stochastic gradient at w is
//
//	ĝ(w) = GradientScale·(∇Q(w; Batch) + Noise)
//
// which combines mini-batch, noise and random skipping of steps in the order of equation (42) in the paper on
// second-order guarantees ("2nd-order"). The noise is added before the gradient is scaled.
type StepDraw[T Float] struct {
	Batch Batch[T]
	// factor of the gradient: 1/δ_k if agent k computes this step, where δ_k is the probability of computing it, and 0
	// if it skips the step at random (2nd-order paper, equation (9))
	GradientScale float64
	Noise         []T // gradient noise v, of length d (2nd-order paper, equation (8)); nil means no noise
}

// StepDrawSource provides the random inputs (batch and noise) for the local steps of a [Descent].
type StepDrawSource[T Float] interface {
	// Next returns the random inputs of the next local step of model m. It is called once per step, in order, and may
	// reuse the memory of the previous result.
	Next(m *Model[T]) *StepDraw[T]
}

// SampleStream generates an endless sequence of samples, so that synthetic data need not be stored.
type SampleStream[T Float] interface {
	// Sample draws one sample. It fills x, of length Inputs, with the features and returns the target.
	Sample(x []T) (y T)
}
