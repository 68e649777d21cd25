package store

import (
	"slices"
	"syscall"
)

// ramFileSystemMagics contains the magic numbers of tmpfs and ramfs.
var ramFileSystemMagics = []uint32{0x01021994, 0x858458f6}

// IsRAMBackedFolder reports whether the folder dir is in memory. Its files are lost in a power cut even if they are
// fsynced.
func IsRAMBackedFolder(dir string) bool {
	var s syscall.Statfs_t
	return syscall.Statfs(dir, &s) == nil && slices.Contains(ramFileSystemMagics, uint32(s.Type))
}
