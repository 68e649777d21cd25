package demo

import (
	"testing"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/internal/testkit/trainers"
)

// The audit looks at what an agent works on, and changes nothing of it.
func TestAuditedTrainer(t *testing.T) {
	trainers.Suite(t, trainers.Traits{}, func() agent.Trainer {
		return &life{Trainer: agent.LocalTrainer{}, course: &course{audit: newAudit(1)}, id: "a"}
	})
}
