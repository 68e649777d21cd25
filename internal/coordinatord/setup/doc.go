// Package setup creates a federation for `coordinator init`. From a few answers it makes the coordinator's key, the
// coordinator's configuration, and the initial configuration of all devices.
package setup
