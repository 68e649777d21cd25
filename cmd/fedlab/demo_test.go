package main

import (
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/clitest"
)

// TestDemoSet checks that unknown keys and invalid values in the demo's --set flags are rejected as in a configuration
// file.
func TestDemoSet(t *testing.T) {
	for _, c := range []struct{ flag, set, want string }{
		{"--set", "round.evaluate.every=2", `--set: command line: unknown key "round.evaluate.every"`},
		{"--set", "round.evaluation.every=-1", "round.evaluation.every: must be between 0"},
		{"--agent-set", "evaluation.held_out=2", "evaluation.held_out: must be"},
		{"--agent-set", "evaluation.held_out", "want KEY=VALUE"},
	} {
		code, _, stderr := clitest.Run(rootCommand(), "demo", c.flag, c.set)
		if code == 0 || !strings.Contains(stderr, c.want) {
			t.Errorf("%s %s: exit status %d, %s", c.flag, c.set, code, stderr)
		}
	}
}
