package coordinatord

import (
	"math"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/internal/testkit/surface"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/wire"
)

var one, two = wire.ModelName{Run: 7, Version: 1}, wire.ModelName{Run: 6, Version: 2}

// TestExplosionIsTold: a model that is much worse than those before is told once, until models are good again.
func TestExplosionIsTold(t *testing.T) {
	unknown := math.NaN()
	var b strings.Builder
	log, err := logging.New(&b, surface.DebugLogOptions())
	if err != nil {
		t.Fatal(err)
	}
	l := coordinatorLog{log, &riskMonitor{}}
	for k, x := range []struct {
		risk float64
		held bool
		want bool
	}{
		{unknown, false, false}, {4, true, false}, {0.2, true, false},
		{3.9, true, false}, // over ten times, and not worse than at first
		{1e58, true, true}, {1e59, true, false}, {math.Inf(1), true, false}, {0.3, true, false}, {5, true, true},
	} {
		before := strings.Count(b.String(), "much worse")
		f := coordinator.ModelReady{Version: wire.ModelVersion(k), MeanReportedRisk: unknown, MedianRisk: x.risk}
		if x.held {
			f.MedianRisk, f.HeldOutScore = unknown, &learner.Score{Risk: x.risk, R2: unknown, Accuracy: unknown}
		}
		l.Observe(f)
		if told := strings.Count(b.String(), "much worse") > before; told != x.want {
			t.Errorf("model %d, of risk %v: told %t", k, x.risk, told)
		}
	}
	l.Observe(coordinator.ModelReady{Version: 1, MeanReportedRisk: 1, MedianRisk: 100}) // of another run
	if got := strings.Count(b.String(), "much worse"); got != 2 ||
		!strings.Contains(b.String(), "of=\"held-out data\"") {
		t.Errorf("told %d times:\n%s", got, &b)
	}
}

// TestEnrolLogWithoutError: a refusal without an error has no attribute err.
func TestEnrolLogWithoutError(t *testing.T) {
	var b strings.Builder
	log, err := logging.New(&b, surface.DebugLogOptions())
	if err != nil {
		t.Fatal(err)
	}
	enrolLog{log}.Observe(enrol.JoinRefused{Agent: "a", From: "127.0.0.1", Reason: 1})
	enrolLog{log}.Observe(enrol.RenewRefused{Agent: "a", Reason: 1})
	if text := b.String(); strings.Contains(text, "err=") || strings.Count(text, "\n") != 2 {
		t.Errorf("%s", text)
	}
}
