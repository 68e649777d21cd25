//go:build race

package conformance

// Sizes under the race detector, which takes ten times the time and memory,
// and finds no more in a thousand than in a hundred.
const (
	racing        = true
	manyAgents    = 150
	burstSessions = 20
)
