// Package task prepares a wire.Task for use by the coordinator, the agents and the simulator. It builds the model,
// defines the layout of the vectors that agents send, and computes an agent's contribution to a round.
package task
