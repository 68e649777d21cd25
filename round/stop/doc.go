// Package stop decides when a run ends: at a target, when its risk no longer improves, or when its time or byte limit
// is reached.
//
// The package reads no clock and does no I/O. Package round calls it and passes the time.
package stop
