//go:build linux || darwin

package doctor

import "golang.org/x/sys/unix"

// freeBytes is the room for this user on the disk of a folder.
func freeBytes(dir string) (int64, bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true //nolint:unconvert // their types differ between systems
}
