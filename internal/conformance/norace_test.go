//go:build !race

package conformance

const (
	racing        = false
	manyAgents    = 1000
	burstSessions = 100
)
