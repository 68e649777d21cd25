//go:build unix

package bench

import (
	"syscall"
	"time"
)

// processorTime returns the CPU time that this process has used, summed over all cores.
func processorTime() time.Duration {
	var own syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &own) // Getrusage cannot fail with these arguments.
	return time.Duration(own.Utime.Nano() + own.Stime.Nano())
}
