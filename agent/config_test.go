package agent_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/mqtt"
)

// TestConfig checks that an invalid configuration is rejected with an error that lists all problems.
func TestConfig(t *testing.T) {
	for _, tt := range []struct {
		change func(c *agent.Config)
		says   string
	}{
		{func(c *agent.Config) { c.Federation = "two-words" }, "two-words"},
		{func(c *agent.Config) { c.ID = "coordinator" }, "coordinator"},
		{func(c *agent.Config) { c.Identity.Key = nil }, "the agent's key has 0 bytes"},
		{func(c *agent.Config) { c.Identity.Coordinator = c.Identity.Coordinator[1:] }, "public key has 31 bytes"},
		{func(c *agent.Config) { c.TaskData.Source = nil }, "the data source is not set"},
		{func(c *agent.Config) { c.StateDir = "" }, "the state folder is not set"},
		{func(c *agent.Config) { c.BootEpoch = 0 }, "boot epoch"},
		{func(c *agent.Config) { c.MaxBlobBytes = 0 }, "maximum size of a model or task"},
		{func(c *agent.Config) { c.Rand = nil }, "random source"},
	} {
		s := newScene(t)
		s.cfg.BootEpoch, s.cfg.Rand = 1, rand.New(rand.NewPCG(1, 1))
		tt.change(&s.cfg)
		_, err := agent.New(s.cfg, func(func() mqtt.Message) (mqtt.Conn, error) { return s, nil })
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v, want an error with %q", err, tt.says)
		}
	}
}
