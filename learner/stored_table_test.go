package learner

import (
	"math"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

// memoryTable is a table of rows in memory that behaves like a file, in which a part of the rows is not standardised
// yet. After lost is set, no row can be read.
type memoryTable struct {
	inputs int
	x, y   []float32
	again  func(x, y []float32)
	lost   bool
}

func (m *memoryTable) ReadRows(x, y []float32, from int) {
	copy(x, m.x[from*m.inputs:][:len(x)])
	copy(y, m.y[from:][:len(y)])
	if m.again != nil {
		m.again(x, y)
	}
	if m.lost {
		clear(y)
		for i := range x {
			x[i] = float32(math.NaN())
		}
	}
}

// TestTableEqualsMemory checks that all results for rows in a table are bitwise identical to the results for the same
// rows in memory.
func TestTableEqualsMemory(t *testing.T) {
	const rows = 9000 // number of rows; the reader buffers fewer rows at a time
	for _, a := range []Architecture{
		{Inputs: 3, Outputs: 1, Risk: spec.LossSquared, HasBias: true},
		{Inputs: 40, Outputs: 1, Risk: spec.LossLogistic, Ridge: 0.1},
		{Inputs: 7, HiddenUnits: []int{9}, Outputs: 3, Risk: spec.LossSoftmax, Activation: spec.ActivationReLU,
			HasBias: true},
	} {
		for _, n := range []int{20, rows} {
			m := newModel[float32](t, a)
			raw := randomSamples[float32](a, n, newRNG(1))
			if a.Risk == spec.LossLogistic {
				for i, y := range raw.y {
					raw.y[i] = max(y, 0) // Use the labels 0 and 1, which MapLabels converts to −1 and 1.
				}
			}
			st := ComputeColumnMoments(raw).Standardization(a.Risk, 1.5)
			table := &memoryTable{inputs: a.Inputs, x: slices.Clone(raw.x), y: slices.Clone(raw.y),
				again: func(x, y []float32) { m.MapAndStandardizeAgain(st, x, y) }}
			memory := NewSamples(a.Inputs, raw.x, raw.y)
			if _, err := memory.MapLabels(a, LabelHistory{}); err != nil {
				t.Fatal(err)
			}
			if err := memory.Standardize(st); err != nil {
				t.Fatal(err)
			}
			far := NewTableSamples(a.Inputs, n, StoredTable[float32](table))
			same(t, m, memory, far)
			same(t, m, memory.FirstSamples(n-3).SkipFirstSamples(4), far.FirstSamples(n-3).SkipFirstSamples(4))
		}
	}
}

// same checks that a model gives the same results for samples of a table and samples in memory.
func same(t *testing.T, m *Model[float32], memory, far *Samples[float32]) {
	t.Helper()
	equal := func(what string, a, b []float32) {
		t.Helper()
		if len(a) == 0 || !slices.Equal(a, b) {
			t.Errorf("%d rows of %d: %s differ", memory.Len(), memory.FeatureCount(), what)
		}
	}
	d, w := m.arch.ParameterCount(), randomVector[float32](m.arch.ParameterCount(), 0.3, newRNG(2))
	for _, i := range []int{0, memory.Len() / 2, memory.Len() - 1} {
		x, y := memory.Row(i)
		fx, fy := far.Row(i)
		equal("rows", append(fx, fy), append(slices.Clone(x), y))
	}
	var a, b Batch[float32]
	memory.DrawBatch(&a, 50, newRNG(3))
	far.DrawBatch(&b, 50, newRNG(3))
	equal("features drawn", a.X, b.X)
	equal("targets drawn", a.Y, b.Y)
	s, fs := memory.RandomSubset(100, newRNG(4)), far.RandomSubset(100, newRNG(4))
	if s.Len() > 100 || memory.Len() <= 100 && (s != memory || fs != far) {
		t.Errorf("a subset of %d", s.Len())
	}
	if memory.Len() > 100 {
		equal("subsets", append(slices.Clone(s.x), s.y...), append(slices.Clone(fs.x), fs.y...))
	}
	g, fg := make([]float32, d), make([]float32, d)
	if r, fr := m.Gradient(g, w, memory.All()), m.Gradient(fg, w, far.All()); r != fr || far.All().Len() != far.Len() {
		t.Errorf("risks %v and %v", r, fr)
	}
	equal("gradients", g, fg)
	if r, fr := m.Risk(w, memory.All()), m.Risk(w, far.All()); r != fr || isFinite(r) != true {
		t.Errorf("risks %v and %v", r, fr)
	}
	r, fr := m.Score(w, memory), m.Score(w, far)
	if r.Risk != fr.Risk || r.Samples != fr.Samples || r.R2 != fr.R2 && r.R2 == r.R2 || r.Accuracy != fr.Accuracy &&
		r.Accuracy == r.Accuracy {
		t.Errorf("scores %+v and %+v", r, fr)
	}
	if v, fv := ComputeColumnMoments(memory).Vector(), ComputeColumnMoments(far).Vector(); !slices.Equal(v, fv) {
		t.Error("moments differ")
	}
	for _, size := range []int{0, 1, 5} {
		trained := func(of *Samples[float32]) []float32 {
			sampler := &StepSampler[float32]{GradientConfig: GradientConfig{BatchSize: size}, Data: of, Rand: newRNG(5)}
			if err := sampler.Validate(m); err != nil {
				t.Fatal(err)
			}
			descent := Descent[float32]{Model: m, Draws: sampler, Schedule: StepSizeSchedule{ConstantStepSize: 0.01}}
			v := slices.Clone(w)
			if _, err := descent.Run(v, 3, 1, 0, nil); err != nil {
				t.Fatal(err)
			}
			return v
		}
		equal("local steps", trained(memory), trained(far))
	}
}

// TestLostTable checks that local steps return an error if rows cannot be read.
func TestLostTable(t *testing.T) {
	for _, a := range architectures() {
		m, s := newModel[float32](t, a), randomSamples[float32](a, 100, newRNG(1))
		far := NewTableSamples(a.Inputs, s.Len(), StoredTable[float32](&memoryTable{inputs: a.Inputs, x: s.x, y: s.y,
			lost: true}))
		w := randomVector[float32](a.ParameterCount(), 0.3, newRNG(2))
		if r := m.Risk(w, far.All()); isFinite(r) {
			t.Errorf("%+v: risk %v", a, r)
		}
		for _, size := range []int{0, 1, 5} {
			sampler := &StepSampler[float32]{GradientConfig: GradientConfig{BatchSize: size}, Data: far,
				Rand: newRNG(5)}
			descent := Descent[float32]{Model: m, Draws: sampler, Schedule: StepSizeSchedule{ConstantStepSize: 0.01}}
			if _, err := descent.Run(slices.Clone(w), 3, 1, 0, nil); err == nil {
				t.Errorf("%+v: steps of %d rows are taken", a, size)
			}
		}
	}
}
