package store

import (
	"slices"
	"syscall"
)

// ramFileSystemMagics are the magic numbers of tmpfs and ramfs.
var ramFileSystemMagics = []uint32{0x01021994, 0x858458f6}

// IsRAMBackedFolder reports whether a folder is in memory, so that nothing in it survives a power cut, synced or not.
func IsRAMBackedFolder(dir string) bool {
	var s syscall.Statfs_t
	return syscall.Statfs(dir, &s) == nil && slices.Contains(ramFileSystemMagics, uint32(s.Type))
}
