//go:build !linux

package store

// IsInMemory reports whether a folder is known to be in memory. Of this system none is.
func IsInMemory(string) bool { return false }
