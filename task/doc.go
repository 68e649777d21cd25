// Package task says what a wire.Task means in the terms of package learner,
// for the coordinator, the agent and the simulator alike: which model it
// names, what its vectors look like, and what an agent computes in one round.
package task
