//go:build !race && nightly

package conformance

const (
	manyAgents    = 1000
	burstSessions = 100
)
