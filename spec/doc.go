// Package spec holds the words of a task and of a round: risk, activation, noise, exchange, codec, algorithm,
// sampling, weights, edges and their rule. Each is a string type whose values are the words that configuration
// files, experiments, results and logs show. Package wire alone turns them into bytes.
//
// Each type reads itself from text (UnmarshalText) and checks itself (Validate). Both errors name the words that exist.
// The zero value is no word; Validate refuses it.
//
// [Model], [StepSize] and [GradientNoise] are sections of keys that coordinator.yaml and an experiment of the simulator
// share, each with one Check.
//
// [FieldError] is a value that cannot be, by its key in the file; a [ProblemList] collects them. All configurations and
// experiments are validated with it.
package spec
