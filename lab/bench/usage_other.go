//go:build !unix

package bench

import "time"

// processorTime returns 0, because CPU time is not measured on this operating system.
func processorTime() time.Duration { return 0 }
