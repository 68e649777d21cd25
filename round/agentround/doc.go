// Package agentround contains the state machine of an agent, which answers announcements and invitations, trains, and
// sends updates. Like the coordinator's machine in package round, it performs no I/O: it receives events and returns
// effects for its host to perform.
package agentround
