//go:build race

package world_test

// The race detector keeps 5 kB for each coroutine that has ended, and a plan has thousands: with all plans, and the
// planted bugs, the tests would take 24 GB.
const (
	plans  = 50
	stride = 19
)
