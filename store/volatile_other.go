//go:build !linux

package store

// Volatile reports whether a folder is known to be in memory. Of this system none is.
func Volatile(string) bool { return false }
