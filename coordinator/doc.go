// Package coordinator is the I/O host of the parameter server: it owns the
// round's machine, the transfers, the spool, the models and the journal, and
// does what they ask for over one connection to the broker.
//
// The goroutine of Coordinator.Run owns all state. The connection's callbacks
// only fill a bounded mailbox; what waits for the disk or takes long (checking
// and storing an update, folding a round) runs beside it and comes back as an
// event.
package coordinator
