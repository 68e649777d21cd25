package agent_test

import (
	"testing"
	"testing/synctest"
)

// TestPartsAreListed checks that the agent calls the hooks of every part that it constructs.
func TestPartsAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		if unlisted := s.host.UnlistedParts(); unlisted != nil {
			t.Errorf("the fields %q are not in Agent.parts, so the hooks of these parts are never called", unlisted)
		}
	})
}
