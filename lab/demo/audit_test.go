package demo

import (
	"testing"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/internal/testkit/trainers"
)

// TestAuditedTrainer checks that recording the parameters does not change the result of training.
func TestAuditedTrainer(t *testing.T) {
	trainers.Suite(t, trainers.Traits{}, func() training.Trainer {
		return &life{Trainer: training.LocalTrainer{}, course: &course{audit: newAudit(1)}, id: "a"}
	})
}
