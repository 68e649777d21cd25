package store

import (
	"errors"
	"os"
	"syscall"
)

// Sync makes the content and length durable. It uses fdatasync, which skips the modification time.
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
