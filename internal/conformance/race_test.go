//go:build race

package conformance

// Sizes under the race detector. It needs ten times the time and memory, and a hundred clients reveal as many races as
// a thousand.
const (
	racing        = true
	manyAgents    = 150
	burstSessions = 20
)
