package store

import "golang.org/x/sys/windows"

// FreeDiskBytes returns the free disk space for the current user at a path, in bytes. known is false if it is unknown.
func FreeDiskBytes(path string) (free int64, known bool) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, false
	}
	var available uint64
	err = windows.GetDiskFreeSpaceEx(name, &available, nil, nil)
	return int64(min(available, 1<<62)), err == nil
}
