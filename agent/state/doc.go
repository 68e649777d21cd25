// Package state manages an agent's state folder, which contains the files that are kept across restarts. Files lists
// these files and the effect of losing each file. A damaged file is treated as missing, so that a device starts without
// an operator. WriteRetrier retries failed writes.
package state
