package demo

import (
	"testing"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/internal/testkit/trainers"
)

// The audit looks at what an agent works on, and changes nothing of it.
func TestAuditedTrainer(t *testing.T) {
	trainers.Suite(t, trainers.Traits{}, func() training.Trainer {
		return &life{Trainer: training.LocalTrainer{}, course: &course{audit: newAudit(1)}, id: "a"}
	})
}
