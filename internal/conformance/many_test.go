//go:build !race && !nightly

package conformance

const (
	manyAgents    = 300
	burstSessions = 50
)
