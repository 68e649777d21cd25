//go:build !linux && !darwin

package store

// FreeDiskBytes returns false, because this function is not implemented for this operating system.
func FreeDiskBytes(string) (int64, bool) { return 0, false }
