//go:build nightly

package e2e

import "testing"

// TestAllRespond has each agent leave, come back and take part.
func TestAllRespond(t *testing.T) {
	t.Parallel()
	openCrowd(t).respond(t, crowdThere)
}
