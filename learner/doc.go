// Package learner is what an agent computes: models, risks, their gradients, how these become stochastic, the local
// steps of a round, how many steps a device can afford, and the preparation of its data.
//
// A model is an [Objective], of which there is a file a kind, and one flat vector w with a named layout; weights and
// biases are views into it, so the same numbers are the model, the payload on the wire and the input of the
// aggregation. Everything that touches parameters is generic over float32 (the daemons) and float64 (the experiments).
//
// One round of an agent, from the samples to the model it sends:
//
//	model, err := learner.NewModel[float32](architecture)
//	sampler := &learner.StepSampler[float32]{GradientConfig: learner.GradientConfig{BatchSize: 10},
//		Data: samples, Rand: rng}
//	err = sampler.Validate(model)
//	descent := learner.Descent[float32]{Model: model, Draws: sampler, Schedule: schedule, NormalizesStepSize: true}
//	steps, reason := sizing.LocalStepCount(pace.EstimatedTimePerStep())
//	taken, err := descent.Run(w, steps, weight, stepsBefore, stop) // w: the server's model in, ψ_k out
//	pace.Observe(taken, took)                                      // took: measured by the caller
//
// The package is pure: it reads no clock, starts no goroutine, opens no file, and draws random numbers only from the
// generator it is handed. A [Model] and a [StepSampler] own scratch memory and serve one goroutine at a time; several
// models may read the same [Samples].
//
// Same build, same type of processor, same inputs: same bits. Across processors the order of summation differs in
// the last bits.
package learner
