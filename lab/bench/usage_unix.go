//go:build unix

package bench

import (
	"syscall"
	"time"
)

// processorTime is what this process has used of all processors.
func processorTime() time.Duration {
	var own syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &own) // cannot fail
	return time.Duration(own.Utime.Nano() + own.Stime.Nano())
}
