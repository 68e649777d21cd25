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

// StateFolderLock is the exclusive hold on a state folder.
type StateFolderLock struct{ f *os.File }

// LockFile is the name of the file in a state folder that tells of a daemon's hold on it: it is there once one has
// started.
const LockFile = "lock"

// LockStateFolder takes the exclusive lock of the state folder dir, which must exist, so that two daemons never share
// it, and clears the temporary files that a crash left in it. The lock is advisory and tied to the process: it ends
// with it, however the process ends. If another process holds it the error is ErrLocked and names that process.
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
		err := fmt.Errorf("store: %w: %s is held by %s: stop it, or give this daemon a state folder of its own",
			ErrLocked, dir, readLockHolder(f))
		return nil, errors.Join(err, f.Close())
	}
	l := &StateFolderLock{f: f}
	if err := errors.Join(l.writePID(), removeTempFiles(dir)); err != nil {
		return nil, errors.Join(explainFileError("lock", path, err), l.Unlock())
	}
	return l, nil
}

// Unlock gives the folder back. The file stays: removing it would let two processes lock two files of one name.
func (l *StateFolderLock) Unlock() error { return l.f.Close() }

// writePID names the holder, for the error of a second process. Not fsynced: it means nothing after a crash.
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
	return "a process that has not written its pid yet"
}
