// Package task prepares a wire.Task for use by the coordinator, the agents and the simulator. It builds the model,
// defines the layout of vectors and computes an agent's part of a round.
package task
