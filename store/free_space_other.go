//go:build !linux && !darwin && !windows

package store

// FreeDiskBytes returns false, because the free space of other operating systems is unknown. Programs then write
// without a check, and report an error when the disk is full.
func FreeDiskBytes(string) (int64, bool) { return 0, false }
