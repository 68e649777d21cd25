// Package host contains the parts that agents and coordinators share around their state machines: the event loop that
// owns the state of a program, background jobs, event queues, and the signing and sealing of messages.
package host
