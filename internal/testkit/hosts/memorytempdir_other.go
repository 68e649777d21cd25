//go:build !linux

package hosts

// UseMemoryTempDir leaves folders on the disk: this system names none in memory.
func UseMemoryTempDir() {}
