// Package agent is the I/O host of an agent. It constructs the parts of an agent, connects them to the round machine
// and to the broker, and performs the effects of the machine.
//
// The goroutine of Agent.Run owns all state. Callbacks of the connection only write to a bounded mailbox. Reading data
// and training run concurrently in jobs, at most one of each kind. Their results return to the event loop.
package agent
