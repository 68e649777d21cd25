//go:build !linux

package hosts

// UseMemoryTempDir does nothing: only Linux has a folder in memory with a known name.
func UseMemoryTempDir() {}
