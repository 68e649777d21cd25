// Package coordinator is the I/O host of the parameter server. It passes messages, results and expired deadlines to the
// round machine as events, and performs the machine's effects: over one connection to the broker, and with the packages
// below it, which know neither the coordinator nor each other.
//
// The goroutine of Coordinator.Run, the owner, has all state. The connection's callbacks only fill a bounded mailbox.
// Work that waits for the disk or takes long, such as checking and storing an update or aggregating a round, runs
// beside the owner, and its result comes back as an event.
package coordinator
