package hosts

import (
	"os"
	"syscall"
)

// UseMemoryTempDir has the folders of all tests of a package in memory, where there is room: on a disk each fsync of a
// host takes milliseconds. A TestMain calls it. Not for programs: they look at what their folder is on, and tell it.
func UseMemoryTempDir() {
	const folder, room = "/dev/shm", 1 << 30 // bytes
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err == nil && s.Bavail*uint64(s.Bsize) >= room {
		_ = os.Setenv("TMPDIR", folder) // its name is good
	}
}
