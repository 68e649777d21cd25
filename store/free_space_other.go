//go:build !linux && !darwin

package store

// FreeDiskBytes is the room for this user on the disk of a folder, in bytes, where it can be known.
func FreeDiskBytes(string) (int64, bool) { return 0, false }
