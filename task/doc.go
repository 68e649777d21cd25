// Package task prepares a wire.Task for use by the coordinator, the agent and the simulator: the model, the layout of
// vectors, and the computation of an agent in one round.
package task
