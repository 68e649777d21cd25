package coordinator

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/optimizer"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// TestConfigPairs checks that New rejects an optimiser that is incompatible with the task.
func TestConfigPairs(t *testing.T) {
	cfg := Config{Round: round.DefaultConfig(),
		Task: wire.Task{Training: wire.TrainingSettings{ExchangeKind: spec.ExchangeGradient}}}
	cfg.Round.ServerOptimizer = optimizer.Config{Name: "fedavgm", Tau: 1}
	if err := cfg.validate(); !strings.Contains(fmt.Sprint(err),
		"round.server_optimizer.name: fedavgm cannot be combined with task.exchange gradient") {
		t.Errorf("error %v", err)
	}
}
