// Package agent is the I/O host of an agent. It constructs the parts of an agent, connects them to the round's machine
// and to the broker, and performs the effects of the machine.
//
// The goroutine of Agent.Run owns all state. The connection's callbacks only
// setDefaults a bounded mailbox. Data are read, and local steps taken, beside it, one
// job of each kind at a time; their results come back as events.
package agent
