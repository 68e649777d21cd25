// Package coordinator hosts the parameter server and performs all its I/O. It passes messages, results and expired
// deadlines to the round machine as events, and performs the machine's effects. It uses one connection to the broker
// and the packages below it, which do not depend on it or on each other.
//
// The goroutine of Coordinator.Run, called the owner, holds all state. Callbacks of the connection only fill a bounded
// mailbox. Slow work, such as validating an update or aggregating a round, runs on other goroutines, and its result
// arrives as an event.
package coordinator
