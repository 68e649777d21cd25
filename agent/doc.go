// Package agent is the I/O host of an agent: it owns the round's machine, the
// transfers, the trainer and the disk of one device, and does what they ask for
// over one connection to the broker.
//
// The goroutine of Agent.Run owns all state. The connection's callbacks only
// fill a bounded mailbox; reading data and training run in a goroutine of
// their own, at most one at a time, and come back as events.
package agent
