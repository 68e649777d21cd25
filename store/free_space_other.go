//go:build !linux && !darwin

package store

// FreeDiskBytes returns the free space for this user on the disk of a folder, in bytes. It returns false on systems
// where the space is unknown.
func FreeDiskBytes(string) (int64, bool) { return 0, false }
