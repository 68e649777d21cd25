// Package state is an agent's state folder: what the agent must know after a restart. Files lists each file with what
// the agent does without it. A file that is damaged counts as missing, because a device does not wait for a person; a
// write that fails is tried again (Writes).
package state
