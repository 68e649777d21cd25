//go:build race

package world_test

// Sizes of the tests under the race detector. The race detector needs 5 kB for each ended coroutine, and a plan has
// thousands of coroutines. All plans and deliberate bugs would need 24 GB.
const (
	plans  = 50
	stride = 19
)
