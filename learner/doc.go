// Package learner implements the computations of an agent: models, losses, gradients, stochastic gradients, the local
// steps of a round, the number of steps that a device can afford, and the preparation of its data.
//
// A model is an [Objective], with one file per kind. Its parameters are one flat vector w with a named layout; weights
// and biases are views into w. All code for parameters is generic over float32 (the daemons) and float64 (simulations).
//
// The following code computes one round of an agent, from the samples to the model that the agent sends:
//
//	model, err := learner.NewModel[float32](architecture)
//	sampler := &learner.StepSampler[float32]{GradientConfig: learner.GradientConfig{BatchSize: 10},
//		Data: samples, Rand: rng}
//	err = sampler.Validate(model)
//	descent := learner.Descent[float32]{Model: model, Draws: sampler, Schedule: schedule, NormalizesStepSize: true}
//	steps, reason := policy.LocalStepCount(estimator.EstimatedTimePerStep())
//	taken, err := descent.Run(w, steps, weight, stepsBefore, stop) // w: the server's model in, ψ_k out
//	estimator.AddMeasurement(taken, took)                          // took: measured by the caller
//
// The package reads no clock, starts no goroutine, opens no file, and uses only the random generator that the caller
// passes. A [Model] and a [StepSampler] own scratch memory and are not safe for concurrent use. Several models may read
// the same [Samples].
//
// Results are bitwise reproducible for the same build, type of processor and inputs. On different processors the order
// of summation differs, so the last bits of results may differ.
package learner
