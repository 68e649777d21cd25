// Package state manages an agent's state folder, with the files that survive a restart. Files lists them, and describes
// the behaviour of the agent if one is lost. Damaged files are treated as missing, so that a device starts without an
// operator. Failed writes are retried (WriteRetrier).
package state
