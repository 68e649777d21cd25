// Package host contains code that agents and coordinators share, such as the event loop, background jobs, event queues,
// and the signing and encryption of messages.
package host
