//go:build linux || darwin

package store

import "golang.org/x/sys/unix"

// FreeDiskBytes returns the disk space in bytes that this user may still use on the disk of the folder dir. It returns
// false if the space is unknown.
func FreeDiskBytes(dir string) (int64, bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true //nolint:unconvert // their types differ between systems
}
