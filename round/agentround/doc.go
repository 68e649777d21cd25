// Package agentround contains the state machine of an agent: how it answers announcements and invitations, trains, and
// has its update sent. Like the coordinator's machine in package round, it is pure: events go in, effects come out.
package agentround
