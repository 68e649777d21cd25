// Package rollout decides whether a new model is released to all agents for predictions. First, a share of the agents
// computes predictions of the new model (the candidate) and of the released model for the same rows. The candidate is
// released if its errors are not much larger.
//
// The package reads no clock and does no I/O. Package round calls it and passes the time.
package rollout
