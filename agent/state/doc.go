// Package state is an agent's state folder: the files that an agent needs after a restart. Files lists
// them, each with the behaviour of the agent if the file is lost. A damaged file is treated as missing: a device must
// start without a person. A write that fails is repeated (WriteRetrier).
package state
