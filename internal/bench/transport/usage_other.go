//go:build !unix

package main

import "time"

// processorTime is not known here: brokers are raced on Unix.
func processorTime() time.Duration { return 0 }
