// Package agent is the I/O host of an agent: it owns the round's machine, the
// transfers, the trainer and the disk of one device, and does what they ask for
// over one connection to the broker.
//
// The goroutine of Agent.Run owns all state. The connection's callbacks only
// fill a bounded mailbox. Data are read, and local steps taken, beside it, one
// job of each kind at a time; their results come back as events.
package agent
