//go:build unix

package store

import (
	"errors"
	"os"
	"syscall"
)

// syncDir makes the names in dir durable. It ignores EINVAL and ENOTSUP: some FUSE and network file systems do not
// support fsync on a folder.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

// tryLockFile tries to lock f exclusively without blocking. held reports whether another process has the lock. It uses
// flock because fcntl locks are released when the process closes any descriptor of the file.
func tryLockFile(f *os.File) (held bool, err error) {
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

func isNoSpaceError(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

func isReadOnlyError(err error) bool { return errors.Is(err, syscall.EROFS) }
