//go:build race

package conformance

// Sizes of the tests under the race detector, which needs ten times the time and memory. One hundred clients reveal as
// many data races as one thousand.
const (
	racing        = true
	manyAgents    = 150
	burstSessions = 20
)
