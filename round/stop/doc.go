// Package stop decides when a run ends: at a target, when its risk no longer improves, or when its time or its bytes
// are used up.
//
// It reads no clock and does no I/O; package round hosts it.
package stop
