//go:build nightly

package crowd

import (
	"testing"
	"time"
)

// TestMillion simulates a federation of one million agents.
func TestMillion(t *testing.T) {
	size{agents: 1_000_000, drawn: 100, target: 1000, after: time.Minute, within: 30 * time.Minute}.play(t, false)
}
