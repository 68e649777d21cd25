// Package rollout decides how a model comes into use: first at a share of the agents, which predict with it and with
// the model before it on the same rows, and then, by what their labels have shown, at all or at none.
//
// It reads no clock and does no I/O; package round hosts it.
package rollout
