//go:build !linux

package store

// IsRAMBackedFolder returns false, because folders in memory are only detected on Linux.
func IsRAMBackedFolder(string) bool { return false }
