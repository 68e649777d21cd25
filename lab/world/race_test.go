//go:build race

package world_test

// The race detector uses 5 kB for each ended coroutine, and a plan has thousands. All plans and planted bugs would need
// 24 GB.
const (
	plans  = 50
	stride = 19
)
