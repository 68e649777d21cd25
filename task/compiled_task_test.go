package task_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// linear returns a task with a linear model of two features and the squared loss, in which every step uses all rows.
func linear() wire.Task {
	return wire.Task{
		Name: "t", Features: []string{"a", "b"}, TargetColumn: "y",
		Model: wire.ModelSpec{Outputs: 1, Activation: spec.ActivationTanh, Risk: spec.LossSquared},
		Training: wire.TrainingSettings{ExchangeKind: spec.ExchangeParameters, StepSize: 0.1,
			StepTimeBudgetMillis: 1000, MinLocalSteps: 1,
			MaxLocalSteps: 10},
	}
}

// hourly returns a recipe that makes the rows of the task linear from readings.
func hourly() spec.RowRecipe {
	return spec.RowRecipe{Grid: spec.TimeGrid{Step: time.Hour},
		Inputs: []spec.InputSeries{{Name: "a"}, {Name: "b"}, {Name: "y"}}}.WithDefaults()
}

func TestRecipe(t *testing.T) {
	w := linear()
	if r := compile[float32](t, w).RowRecipe(); r != nil {
		t.Errorf("rows as they are have the recipe %+v", r)
	}
	w.Recipe = hourly()
	if r := compile[float32](t, w).RowRecipe(); r == nil || len(r.Inputs) != 3 {
		t.Errorf("recipe %+v", r)
	}
}

func compile[T learner.Float](t *testing.T, w wire.Task) *task.CompiledTask[T] {
	t.Helper()
	p, err := task.Compile[T](w)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCompileRefuses(t *testing.T) {
	wide := strings.Split(strings.Repeat("x,", 60000), ",")[:60000]
	for i := range wide {
		wide[i] = string(rune('a'+i%26)) + string(rune('0'+i/26))
	}
	for _, tt := range []struct {
		change func(*wire.Task)
		says   string
	}{
		{func(t *wire.Task) { t.Features = nil }, "at least one feature"},
		{func(t *wire.Task) {
			t.Extra = wire.UnknownSections{{Name: "later", UnknownPolicy: wire.DeclineUnknownSection, Body: []byte{1}}}
		},
			"section later: mandatory but not supported"},
		{func(t *wire.Task) { t.Training.Proximal = -1 }, "proximal is -1"},
		{func(t *wire.Task) { t.Training.Proximal, t.Training.ExchangeKind = 1, spec.ExchangeGradient },
			"proximal: the task must exchange parameters"},
		{func(t *wire.Task) { t.Training.Proximal, t.Mixing.HasEndlessBlocks = 1, true },
			"proximal: not supported with endless blocks"},
		{func(t *wire.Task) { t.Model.FrozenTensors = []string{"layer7"} }, `does not contain the tensors ["layer7"]`},
		{func(t *wire.Task) { t.Model.HuberDelta = 1 }, "huber"},
		{func(t *wire.Task) { t.Recipe.Grid.Step = time.Hour }, "task.grid: this key is set, but task.inputs is empty"},
		{func(t *wire.Task) { t.Recipe = hourly(); t.Recipe.Inputs[0].Resampling = "mode" }, "task.inputs[0].join"},
		{func(t *wire.Task) { t.Recipe = hourly(); t.Features[0] = "c" }, "unknown input c"},
		{func(t *wire.Task) { t.Recipe = hourly(); t.Features[0] = "hour" }, "replace this feature by its columns"},
		{func(t *wire.Task) { t.TargetColumn = "" }, "at least one feature and a target"},
		{func(t *wire.Task) { t.Features[1] = "a" }, `column name "a" is empty or a duplicate`},
		{func(t *wire.Task) { t.Features[1] = "y" }, `column name "y"`},
		{func(t *wire.Task) { t.Features[0] = "" }, `column name "" is empty`},
		{func(t *wire.Task) { t.Model.Outputs = 2 }, "outputs is 2"},
		{func(t *wire.Task) { t.Model.Risk = spec.LossSoftmax }, "outputs is 1"},
		{func(t *wire.Task) { t.Model.Risk = "" }, "risk"},
		{func(t *wire.Task) { t.Model.Risk = "cubic" }, "risk"},
		{func(t *wire.Task) { t.Model.HiddenUnits = []uint32{0} }, "hidden[0] is 0"},
		{func(t *wire.Task) { t.Model.HiddenUnits = []uint32{math.MaxUint32} }, "hidden[0]"},
		{func(t *wire.Task) { t.Model.HiddenUnits = slices.Repeat([]uint32{1}, 9) }, "9 layers"},
		{func(t *wire.Task) { t.Model.Ridge = -1 }, "ridge"},
		{func(t *wire.Task) { t.Training.StepSize = 0 }, "step size is 0"},
		{func(t *wire.Task) { t.Training.StepSizeDecayOffset = 1 }, "either the constant step size or the other two"},
		{func(t *wire.Task) { t.Training.StepSize, t.Training.StepSizeDecayOffset = 0, 1 }, "strong convexity is 0"},
		{func(t *wire.Task) { t.Training.BatchSize = 65537 }, "batch size is 65537, but must be between 1 and 65536"},
		{func(t *wire.Task) { t.Training.LocalStepProbability = 1.5 }, "step probability is 1.5"},
		{func(t *wire.Task) { t.Training.LocalStepProbability = -0.5 }, "step probability is -0.5"},
		{func(t *wire.Task) { t.Training.GradientNoise.Law = spec.NoiseLaplace }, "gradient_noise.variance: invalid " +
			"value 0"},
		{func(t *wire.Task) { t.Training.GradientNoise.Variance = 0.1 }, "gradient_noise.law: want none"},
		{func(t *wire.Task) {
			t.Training.GradientNoise = spec.GradientNoise{Law: spec.NoiseGaussian, Variance: -1}
		}, "gradient_noise.variance: invalid value -1"},
		{func(t *wire.Task) { t.Model.HiddenUnits, t.Model.Activation = []uint32{2}, "step" }, "activation: want tanh"},
		{func(t *wire.Task) { t.Training.MinLocalSteps = 0 }, "the minimum is 0"},
		{func(t *wire.Task) { t.Training.MaxLocalSteps = 0 }, "maximum of 0"},
		{func(t *wire.Task) { t.Training.StepTimeBudgetMillis = 0 }, "budget"},
		{func(t *wire.Task) { t.Standardization.Mean = []float64{1} }, "1 means and 0 scales"},
		{func(t *wire.Task) {
			t.Standardization = wire.Standardization{Mean: []float64{1, 2}, Scale: []float64{1, 2}}
		}, "2 columns, but the task has 2 features and one target"},
		{func(t *wire.Task) {
			t.Standardization = wire.Standardization{Mean: []float64{1, 2, 3}, Scale: []float64{1, 0, 1}}
		}, "scale of column 1 is 0"},
		{func(t *wire.Task) { t.Features, t.Model.HiddenUnits = wide, []uint32{1000} },
			"the model has 240004000 bytes"},
	} {
		w := linear()
		tt.change(&w)
		p, err := task.Compile[float32](w)
		if err == nil || !strings.Contains(err.Error(), tt.says) || p != nil {
			t.Errorf("%v, want an error with %q", err, tt.says)
		}
		if same := task.Validate[float32](w); same == nil || err != nil && same.Error() != err.Error() {
			t.Errorf("Validate: %v; Compile: %v", same, err)
		}
	}
	w := linear()
	w.Model.Outputs, w.Training.MinLocalSteps, w.TargetColumn = 2, 0, ""
	if _, err := task.Compile[float64](w); err == nil || strings.Count(err.Error(), "\n") < 2 {
		t.Errorf("three mistakes give one problem: %v", err)
	}
}

// TestSchema checks the schema in the example of docs/PROTOCOL.md, section 8.
func TestSchema(t *testing.T) {
	w := linear()
	w.Model.HasBias = true
	p := compile[float32](t, w)
	const want = "50e093a2eab39f253b5af807f579963782ac49be9ad60ca0220967430ead105e"
	if got := p.UpdateSchema(wire.KindTraining).Hash().String(); got != want {
		t.Errorf("schema of the linear model: %s", got)
	}
	if other := compile[float64](t,
		w); other.UpdateSchema(wire.KindTraining).Hash() == p.UpdateSchema(wire.KindTraining).Hash() {
		t.Error("float64 has the schema of float32")
	}
	w.Model.HiddenUnits = []uint32{5, 3}
	s := compile[float32](t, w).UpdateSchema(wire.KindTraining)
	var names []string
	for _, x := range s {
		names = append(names, x.Name)
	}
	if got := strings.Join(names, " "); got != "layer0.weight layer0.bias layer1.weight layer1.bias layer2.weight "+
		"layer2.bias" || s.ElementCount() != 5*2+5+3*5+3+3+1 {
		t.Errorf("%s, %d elements", got, s.ElementCount())
	}
	if s := p.UpdateSchema(wire.KindStatistics); s.ElementCount() != 7 || s.VectorByteCount() != 56 ||
		s[0].DType != wire.Float64 {
		t.Errorf("statistics: %+v", s)
	}
}

func TestInitial(t *testing.T) {
	w := linear()
	if got := compile[float64](t, w).InitialParameters(1); !slices.Equal(got, []float64{0, 0}) {
		t.Errorf("a linear model begins at %v", got)
	}
	w.Model.HiddenUnits = []uint32{4}
	p := compile[float64](t, w)
	if !slices.Equal(p.InitialParameters(1), p.InitialParameters(1)) || slices.Equal(p.InitialParameters(1),
		p.InitialParameters(2)) {
		t.Error("a network's start does not follow from its seed")
	}
}

// TestStandardization checks that the statistics of the agents, added up, equal the statistics of all rows. With the
// resulting task, each feature must have the mean 0 and the standard deviation 1 over all agents.
func TestStandardization(t *testing.T) {
	w := linear()
	w.MinSamples = 3
	p := compile[float64](t, w)
	raw := [][]float64{{1, 10, 100}, {2, 30, 50}, {3, 20, 60}, {10, 500, 70}, {20, 10, 0}, {30, -10, 40}, {5, 5, 5}}
	parts := [][][]float64{raw[:3], raw[3:]}
	var all [][]float64
	for _, rows := range parts {
		v, err := p.StatisticsVector(samples(rows))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	if want := []float64{3, 2, 20, 70, 2, 200, 1400}; !slices.Equal(all[0], want) {
		t.Errorf("moments %v, want %v", all[0], want)
	}
	std, _, err := p.WithStandardization(2, of(t, all...), 0)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := wire.DecodeTask(std.AppendEncoding(nil))
	if err != nil {
		t.Fatal(err)
	}
	q := compile[float64](t, decoded)
	mean, square, target := [2]float64{}, [2]float64{}, 0.0
	for _, rows := range parts {
		s := samples(rows)
		if err := q.PrepareSamples(s); err != nil {
			t.Fatal(err)
		}
		for i := range s.Len() {
			x, y := s.Row(i)
			for j, v := range x {
				mean[j] += v / 7
				square[j] += v * v / 7
			}
			target += y / 7
			if back := q.Standardization().RestoreTarget(y); math.Abs(back-rows[i][2]) > 1e-12 {
				t.Errorf("target %v comes back as %v", rows[i][2], back)
			}
		}
	}
	for j := range mean {
		if math.Abs(mean[j]) > 1e-12 || math.Abs(square[j]-1) > 1e-12 {
			t.Errorf("column %d has mean %v and mean square %v", j, mean[j], square[j])
		}
	}
	if math.Abs(target) > 1e-12 {
		t.Errorf("the target has mean %v", target)
	}
	if len(p.Standardization().Mean) > 0 {
		t.Error("the task it was made of has changed")
	}
}

// TestUnitsOfTheTarget trains on the same data with the target in W and in kW. The updates must be equal, and the risks
// must be in the units of the data.
func TestUnitsOfTheTarget(t *testing.T) {
	for _, hidden := range [][]uint32{nil, {4}} {
		w := linear()
		w.Model.HiddenUnits, w.Model.HasBias = hidden, true
		train := func(unit float64) task.LocalOutcome[float64] {
			rng := rand.New(rand.NewPCG(3, 4))
			rows := make([][]float64, 40)
			for i := range rows {
				a, b := rng.NormFloat64(), rng.NormFloat64()
				rows[i] = []float64{a, b, unit * (3 + a - 2*b + a*b)}
			}
			p, s := compile[float64](t, w), samples(rows)
			v, err := p.StatisticsVector(s)
			if err != nil {
				t.Fatal(err)
			}
			std, _, err := p.WithStandardization(1, of(t, v), 6)
			if err != nil {
				t.Fatal(err)
			}
			if p = compile[float64](t, std); p.PrepareSamples(s) != nil {
				t.Fatal("rows are refused")
			}
			out, err := p.RunLocalSteps(task.LocalJob[float64]{BaseParameters: p.InitialParameters(1), Samples: s,
				StepWeight: 1,
				Steps:      10,
				Rand:       rng})
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		kw, watt := train(1), train(1000)
		for i, v := range kw.UpdateVector {
			if math.Abs(v-watt.UpdateVector[i]) > 1e-9 {
				t.Errorf("hidden %v: element %d of the update is %v in kW and %v in W", hidden, i, v,
					watt.UpdateVector[i])
			}
		}
		for _, r := range [][2]float64{{kw.RiskBefore, watt.RiskBefore}, {kw.RiskAfter, watt.RiskAfter}} {
			if math.Abs(r[1]/r[0]/1e6-1) > 1e-9 {
				t.Errorf("hidden %v: the risk is %v kW² and %v W²", hidden, r[0], r[1])
			}
		}
	}
}

func TestStatisticsRefused(t *testing.T) {
	w := linear()
	w.MinSamples = 3
	p := compile[float64](t, w)
	if v, err := p.StatisticsVector(samples([][]float64{{1, 2, 3}, {1, 2, 3}})); err == nil || v != nil {
		t.Errorf("two rows are spoken of: %v", v)
	}
	if _, err := p.StatisticsVector(samples([][]float64{{1e200, 2, 3}, {1, 2, 3}, {1, 2, 3}})); !errors.Is(err,
		wire.ErrNotFinite) {
		t.Errorf("a sum of squares that is infinite: %v", err)
	}
	gone := errors.New("gone")
	if _, _, err := p.WithStandardization(1, func(func(*learner.ColumnMoments)) error { return gone },
		0); !errors.Is(err,
		gone) {
		t.Errorf("statistics that cannot be read: %v", err)
	}
}

// TestPrepareLabels checks that labels are converted to the form that the loss uses, and are not scaled.
func TestPrepareLabels(t *testing.T) {
	w := linear()
	w.Model.Risk = spec.LossLogistic
	p := compile[float64](t, w)
	s := samples([][]float64{{1, 2, 0}, {3, 4, 1}})
	if err := p.PrepareSamples(s); err != nil {
		t.Fatal(err)
	}
	v, err := p.StatisticsVector(s)
	if err != nil || v[3] != 0 || v[6] != 2 {
		t.Errorf("%v, %v: want labels of −1 and +1", v, err)
	}
	std, _, err := p.WithStandardization(1, of(t, v), 1)
	if err != nil {
		t.Fatal(err)
	}
	q := compile[float64](t, std)
	s = samples([][]float64{{1, 2, 0}, {30, 4, 1}})
	if err := q.PrepareSamples(s); err != nil {
		t.Fatal(err)
	}
	if x, y := s.Row(1); y != 1 || x[0] != 1 {
		t.Errorf("row 1 is %v, %v", x, y)
	}
	if err := q.PrepareSamples(samples([][]float64{{1, 2, 7}})); err == nil || !strings.Contains(err.Error(),
		"label 7") {
		t.Errorf("label 7: %v", err)
	}
}

// of returns a function that iterates over the moments in the given vectors, one vector per device.
func of(t *testing.T, vectors ...[]float64) func(take func(*learner.ColumnMoments)) error {
	t.Helper()
	var all []*learner.ColumnMoments
	for _, v := range vectors {
		m, err := learner.ColumnMomentsFromVector(v)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return func(take func(*learner.ColumnMoments)) error {
		for _, m := range all {
			take(m)
		}
		return nil
	}
}

// samples returns the given rows as Samples. Each row contains the features, followed by the target.
func samples(rows [][]float64) *learner.Samples[float64] {
	var x, y []float64
	for _, r := range rows {
		x, y = append(x, r[:len(r)-1]...), append(y, r[len(r)-1])
	}
	return learner.NewSamples(len(rows[0])-1, x, y)
}

// TestPreparerKnowsEarlierLabels checks that the labels of later batches must be consistent with the labels of earlier
// batches, and that a batch with an error has no effect.
func TestPreparerKnowsEarlierLabels(t *testing.T) {
	of := linear()
	of.Model.Risk = spec.LossLogistic
	prepare := compile[float64](t, of).NewRowPreparer()
	batch := func(first bool, labels ...float64) ([]float64, error) {
		s := learner.NewSamples(len(of.Features), make([]float64, len(labels)*len(of.Features)), labels)
		err := prepare.PrepareSamples(s, first)
		return s.All().Y, err
	}
	for _, tt := range []struct {
		first  bool
		labels []float64
		want   []float64
		err    string
	}{
		{true, []float64{1, 0}, []float64{1, -1}, ""},
		{false, []float64{1, 1}, []float64{1, 1}, ""},
		{false, []float64{1, -1}, nil, "label 0 in row 2 and -1 in row 6"},
		{false, []float64{0}, []float64{-1}, ""},
		{false, []float64{2}, nil, "label 2 in row 6"},
		{true, []float64{-1}, []float64{-1}, ""},
		{false, []float64{0}, nil, "label -1 in row 1 and 0 in row 2"},
	} {
		got, err := batch(tt.first, tt.labels...)
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%v: %v, want %s", tt.labels, err, tt.err)
			}
		case err != nil || !slices.Equal(got, tt.want):
			t.Errorf("%v, %v; want %v", got, err, tt.want)
		}
	}
}
