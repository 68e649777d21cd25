package store

import (
	"errors"
	"os"
	"syscall"
)

// Sync makes the content durable, and the length with it; fdatasync leaves out the time of the last change.
func (f machineFile) Sync() error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
