package world

import (
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/internal/testkit/trainers"
	"github.com/fedmesh/fedmesh/lab/slow"
)

// TestTrainer runs the conformance suite of trainers with this package's trainer, without a world.
func TestTrainer(t *testing.T) {
	trainers.Suite(t, trainers.Traits{StepTime: time.Second}, func() training.Trainer {
		return trainer{slow.Trainer{Trainer: training.LocalTrainer{}, StepTime: time.Second}, nil}
	})
}
