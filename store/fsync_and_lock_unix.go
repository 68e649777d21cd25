//go:build unix

package store

import (
	"errors"
	"os"
	"syscall"
)

// syncDir makes the names in dir durable. Some FUSE and network file systems refuse fsync on a folder (EINVAL,
// ENOTSUP); there is nothing better to do on them, so that is not an error.
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

// tryLockFile takes the exclusive lock of f without waiting. flock, not fcntl: a fcntl lock is dropped as soon as the
// process closes any other descriptor of the same file.
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
