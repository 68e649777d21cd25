package task_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// counted is a table in which row i has the target i. It counts how many rows are read.
type counted struct{ read int }

func (c *counted) ReadRows(x, y []float64, from int) {
	c.read += len(y)
	for i := range y {
		x[i], y[i] = 1, float64(from+i)
	}
}

// TestRisksOfASample checks that with many rows, risks are computed on a sample that contains one row of each part of
// the rows. The sample must be the same in every round of a run, and must be read only once. With few rows, all rows
// must be used.
func TestRisksOfASample(t *testing.T) {
	const rows = 1_000_000
	of := corrected(wire.MixingSettings{})
	of.Training.Proximal, of.Training.BatchSize, of.Training.StepSize, of.Model.Ridge = 0, 1, 1e-9, 0
	p, err := task.Compile[float64](of)
	if err != nil {
		t.Fatal(err)
	}
	table := &counted{}
	some := learner.NewTableSamples(1, rows, learner.StoredTable[float64](table))
	risks := func(samples *learner.Samples[float64], seed uint64) (before, after float64) {
		t.Helper()
		out, err := p.RunLocalSteps(task.LocalJob[float64]{BaseParameters: []float64{0, 0}, Samples: samples,
			StepWeight: 1,
			Steps:      2,
			Rand:       rand.New(rand.NewPCG(1, 1)), RiskSampleSeed: seed})
		if err != nil {
			t.Fatal(err)
		}
		return out.RiskBefore, out.RiskAfter
	}
	before, after := risks(some, 7)
	want := float64(rows) * rows / 6 // The expected risk is ½ times the mean of i².
	if math.Abs(before/want-1) > 1e-4 || before == want || after == before {
		t.Errorf("risks %v and %v, want about %v", before, after, want)
	}
	if want := task.MaxRiskSampleRows + 2; table.read != want {
		t.Errorf("%d rows were read, want %d", table.read, want)
	}
	if again, _ := risks(some.FirstSamples(rows), 7); again != before || table.read != task.MaxRiskSampleRows+4 {
		t.Errorf("the next round has risk %v, and %d rows were read", again, table.read)
	}
	if other, _ := risks(some, 8); other == before {
		t.Error("another seed has the same sample")
	}
	few, all := some.FirstSamples(task.MaxRiskSampleRows), p.Model.Risk([]float64{0, 0},
		some.FirstSamples(task.MaxRiskSampleRows).All())
	if got, _ := risks(few, 7); got != all {
		t.Errorf("%d rows have risk %v, want %v", few.Len(), got, all)
	}
}
