// Package agentround contains the state machine of an agent: it answers announcements and invitations, trains, and
// sends updates. Like the coordinator's machine in package round, it is pure: events go in, effects come out.
package agentround
