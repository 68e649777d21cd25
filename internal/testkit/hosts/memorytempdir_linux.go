package hosts

import (
	"os"
	"syscall"
)

// UseMemoryTempDir puts the temporary folders of tests into memory (/dev/shm) if enough space is free. This avoids slow
// fsync calls on a disk. Call it in TestMain, but not in tests of the compiled programs, which report the file system
// of their folder.
func UseMemoryTempDir() {
	const folder, room = "/dev/shm", 1 << 30 // room is the required free space in bytes.
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err == nil && s.Bavail*uint64(s.Bsize) >= room {
		_ = os.Setenv("TMPDIR", folder) // Setenv fails only for an invalid variable name.
	}
}
