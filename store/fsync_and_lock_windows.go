package store

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// syncDir does nothing: Windows cannot fsync a folder, and NTFS journals its names.
func syncDir(string) error { return nil }

// tryLockFile tries to lock f exclusively without blocking. held reports whether another process has the lock. Locks on
// Windows are mandatory, so tryLockFile locks one byte far beyond the end of the file. Other processes can then still
// read the process id in the file.
func tryLockFile(f *os.File) (held bool, err error) {
	const exclusiveNow = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	beyond := &windows.Overlapped{OffsetHigh: 0x7fffffff}
	err = windows.LockFileEx(windows.Handle(f.Fd()), exclusiveNow, 0, 1, 0, beyond)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return true, nil
	}
	return false, err
}

func isNoSpaceError(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}

func isReadOnlyError(err error) bool { return errors.Is(err, windows.ERROR_WRITE_PROTECT) }
