// Package setup creates a federation for `coordinator init`: from a few answers it makes the coordinator's key, its
// configuration, and the configuration that all devices start from.
package setup
