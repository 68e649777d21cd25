//go:build nightly

package e2e

import "testing"

// TestAllRespond checks that each agent leaves the broker, returns, and then participates in a round.
func TestAllRespond(t *testing.T) {
	t.Parallel()
	openCrowd(t).respond(t, crowdThere)
}
