// Package state manages an agent's state folder, with the files that survive a restart; Files lists them and the effect
// of losing each file. A damaged file is treated as missing, so that a device starts without an operator, and
// WriteRetrier retries failed writes.
package state
