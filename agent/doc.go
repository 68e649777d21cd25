// Package agent is the I/O host of an agent. It constructs the parts of an agent, connects them to the round state
// machine and to the broker, and performs the effects of the state machine.
//
// The goroutine of Agent.Run owns all state. Callbacks of the connection only write to a bounded mailbox. Background
// jobs read data and train concurrently, with at most one job of each kind, and return their results to the event loop.
package agent
