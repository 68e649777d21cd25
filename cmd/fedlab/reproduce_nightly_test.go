//go:build nightly

package main

import (
	"testing"

	"github.com/fedmesh/fedmesh/cmd/internal/clitest"
)

// TestReproduceFull runs all experiments as they are, five minutes on two cores.
func TestReproduceFull(t *testing.T) {
	if code, stdout, stderr := clitest.Run(rootCommand(), "reproduce", "--out", t.TempDir()); code != 0 {
		t.Errorf("exit status %d: %s\n%s", code, stderr, stdout)
	}
}
