//go:build !linux

package hosts

// UseMemoryTempDir does nothing on this operating system, which has no standard in-memory folder.
func UseMemoryTempDir() {}
