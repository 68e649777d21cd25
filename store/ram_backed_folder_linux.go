package store

import (
	"slices"
	"syscall"
)

// inMemory are the magic numbers of tmpfs and ramfs.
var inMemory = []uint32{0x01021994, 0x858458f6}

// IsInMemory reports whether a folder is in memory, so that nothing in it survives a power cut, synced or not.
func IsInMemory(dir string) bool {
	var s syscall.Statfs_t
	return syscall.Statfs(dir, &s) == nil && slices.Contains(inMemory, uint32(s.Type))
}
