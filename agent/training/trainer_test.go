package training_test

import (
	"testing"

	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/internal/testkit/trainers"
)

func TestLearner(t *testing.T) {
	trainers.Suite(t, trainers.Traits{}, func() training.Trainer { return training.LocalTrainer{} })
}
