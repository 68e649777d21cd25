package agent_test

import (
	"testing"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/internal/testkit/trainers"
)

func TestLearner(t *testing.T) {
	trainers.Suite(t, trainers.Traits{}, func() agent.Trainer { return agent.LocalTrainer{} })
}
