//go:build !unix

package bench

import "time"

// processorTime is not known here: brokers are raced on Unix.
func processorTime() time.Duration { return 0 }
