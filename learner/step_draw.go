package learner

// StepDraw is what one local step uses. The stochastic gradient at w is
//
//	ĝ(w) = Scale·(∇Q(w; Batch) + Noise)
//
// the composition of mini-batch, perturbation and straggling in the order of 2nd-order (42): the perturbation is added
// inside the bracket, and the whole is scaled.
type StepDraw[T Float] struct {
	Batch         Batch[T]
	GradientScale float64 // 1/δ_k if the agent responds at this step, 0 if it straggles: 2nd-order (9)
	Noise         []T     // v of 2nd-order (8), of length d; nil = none
}

// StepDrawSource is where the local steps of a [Descent] get what they use.
type StepDrawSource[T Float] interface {
	// Next is the draw of the next local step of m. It is called once for each step, in their order, and may reuse the
	// memory of the draw before.
	Next(m *Model[T]) *StepDraw[T]
}

// SampleStream is an endless supply of fresh samples, so that synthetic data need no memory. It has a generator of its
// own, or that of the StepSampler that asks for them.
type SampleStream[T Float] interface {
	// Sample draws one sample: it fills x, of length Inputs, with the features and returns the target.
	Sample(x []T) (y T)
}
