//go:build !linux

package store

// IsRAMBackedFolder reports whether a folder is known to be in memory. Of this system none is.
func IsRAMBackedFolder(string) bool { return false }
