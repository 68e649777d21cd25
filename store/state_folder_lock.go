package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// StateFolderLock is an exclusive lock on a state folder.
type StateFolderLock struct{ f *os.File }

// LockFile is the name of the lock file in a state folder. The file exists in every folder in which a daemon has
// started.
const LockFile = "lock"

// LockStateFolder locks the state folder dir exclusively, so that two daemons never share it. It also removes temporary
// files that a crash left behind. dir must exist. The lock is advisory and ends with the process. If another process
// holds the lock, the error wraps ErrLocked and names that process.
func LockStateFolder(dir string) (*StateFolderLock, error) {
	path := filepath.Join(dir, LockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, explainFileError("lock", path, err)
	}
	held, err := tryLockFile(f)
	if err != nil {
		return nil, errors.Join(explainFileError("lock", path, err), f.Close())
	}
	if held {
		err := fmt.Errorf("store: %w: %s is locked by %s: stop that program, or configure another state folder for "+
			"this daemon",
			ErrLocked, dir, readLockHolder(f))
		return nil, errors.Join(err, f.Close())
	}
	l := &StateFolderLock{f: f}
	if err := errors.Join(l.writePID(), removeTempFiles(dir)); err != nil {
		return nil, errors.Join(explainFileError("lock", path, err), l.Unlock())
	}
	return l, nil
}

// Unlock releases the lock. It keeps the lock file, because two processes could otherwise lock different files with the
// same name.
func (l *StateFolderLock) Unlock() error { return l.f.Close() }

// writePID writes the process id to the lock file, for the error message of a second process. It is not fsynced,
// because it is useless after a crash.
func (l *StateFolderLock) writePID() error {
	if err := l.f.Truncate(0); err != nil {
		return err
	}
	_, err := l.f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}

func readLockHolder(f *os.File) string {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err == nil {
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			return fmt.Sprintf("process %d", pid)
		}
	}
	return "an unknown process"
}
