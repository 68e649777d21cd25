//go:build nightly

package round_test

import "testing"

// TestFederationNightly is TestFederation with many more seeds.
func TestFederationNightly(t *testing.T) { liveThroughAll(t, 80, 20000) }
