//go:build nightly

package e2e

import "testing"

// TestAllRespond checks that each agent leaves, returns and participates.
func TestAllRespond(t *testing.T) {
	t.Parallel()
	openCrowd(t).respond(t, crowdThere)
}
