package predict

import (
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// TestForecastTime checks that a forecast from 34 features, with residual and score, takes at most a millisecond in the
// median of several batches.
func TestForecastTime(t *testing.T) {
	const features, batch = 34, 100
	task := &wire.Task{Name: "demo", Features: make([]string, features), TargetColumn: "y"}
	a := learner.Architecture{Inputs: features, Outputs: 1, Risk: spec.LossSquared, HasBias: true}
	vector := wire.AppendVector(nil, make([]float32, a.ParameterCount()))
	f := &forecaster{}
	if err := f.use(none{}, modelfile.NewModel(task, a, vector, wire.BlobDigest(vector))); err != nil {
		t.Fatal(err)
	}
	row := make([]float32, features)
	var took []time.Duration
	for range 50 {
		began := time.Now()
		for i := range batch {
			if _, err := f.forecastLabeledRow(row, float32(i), 0.99, false); err != nil {
				t.Fatal(err)
			}
		}
		took = append(took, time.Since(began)/batch)
	}
	slices.Sort(took)
	if took[25] > time.Millisecond {
		t.Errorf("a forecast takes %v", took[25])
	}
	t.Logf("a forecast takes %v", took[25])
}

// none is a source without rows.
type none struct{ data.Source }

func (none) OpenRows(data.RowQuery) data.QueriedRows { return nil }
