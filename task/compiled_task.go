package task

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// CompiledTask is a task that has been checked and can be worked on. It owns
// scratch memory and serves one goroutine at a time.
type CompiledTask[T learner.Float] struct {
	Task     wire.Task
	Schedule learner.StepSizeSchedule
	Model    *learner.Model[T]

	parameterSplit    *learner.ParameterSplit // what agents share of the model, and what not
	recentRiskSamples [2]riskSample[T]        // the last
}

// Validate checks a task without making it workable. The error names every field that makes no sense, as it would come
// from a coordinator gone wrong. T is the type of the parameters, which bounds the model.
func Validate[T learner.Float](t wire.Task) error {
	p := newCompiledTask[T](t)
	errs := []error{
		t.Extra.CheckSupported(), p.Task.Training.UpdateCodec.Validate(), checkColumns(t), checkExternalModel(&t),
		checkRecipe(&t),
		checkMixing(&t), checkStepCorrection(&t), checkPersonalOptions(&t),
		p.GradientConfig().Validate(), p.Schedule.Validate(), p.StepCountPolicy().Validate(),
		checkStandardization(p.Standardization(), t), checkModel[T](t),
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("task %q: %w", t.Name, err)
	}
	return nil
}

// Compile makes a task workable. The error is that of [Validate].
func Compile[T learner.Float](t wire.Task) (*CompiledTask[T], error) {
	if err := Validate[T](t); err != nil {
		return nil, err
	}
	model, err := learner.NewModel[T](buildArchitecture(t))
	if err != nil {
		return nil, err
	}
	p := newCompiledTask[T](t)
	model.SetReportedRiskUnits(p.Standardization())
	p.Model, p.parameterSplit = model, model.Architecture().NewParameterSplit(t.Personal.PersonalTensors)
	return p, nil
}

// newCompiledTask is a problem without its model.
func newCompiledTask[T learner.Float](t wire.Task) *CompiledTask[T] {
	t.Training.UpdateCodec = cmp.Or(t.Training.UpdateCodec, spec.CodecRaw)
	return &CompiledTask[T]{Task: t, Schedule: learner.StepSizeSchedule{
		ConstantStepSize: t.Training.StepSize, StrongConvexity: t.Training.StrongConvexity,
		DecayOffset: t.Training.StepSizeDecayOffset,
	}}
}

func checkStandardization(st learner.Standardization, t wire.Task) error {
	if len(st.Mean) == 0 && len(st.Scale) == 0 {
		return nil
	}
	if err := st.Validate(); err != nil {
		return err
	}
	last := len(st.Mean) - 1
	if last != len(t.Features) {
		return fmt.Errorf("standardization has %d columns, the task has %d and a target", last+1, len(t.Features))
	}
	if !t.ModelKind().HasTarget() && (st.Mean[last] != 0 || st.Scale[last] != 1) {
		return fmt.Errorf("standardization has the mean %v and the scale %v of a target that there is not; want 0 and "+
			"1", st.Mean[last], st.Scale[last])
	}
	return checkChannelStandardization(st, t)
}

// checkChannelStandardization checks that a standardisation leaves the windows of a conv1d their shape, as filters that
// slide over them need it, and the model can be expressed in another standardisation.
func checkChannelStandardization(st learner.Standardization, t wire.Task) error {
	channels := int(t.Model.Convolution.InputChannels)
	if channels < 1 || len(t.Features)%channels != 0 {
		return nil // of no conv1d, or the model's check tells
	}
	steps := len(t.Features) / channels
	for j := range t.Features {
		first := j / steps * steps
		if st.Mean[j] != st.Mean[first] || st.Scale[j] != st.Scale[first] {
			return fmt.Errorf("standardization of %q has the mean %v and the scale %v, that of %q, of the same "+
				"channel, %v and %v; want one of each for a channel", t.Features[j], st.Mean[j], st.Scale[j],
				t.Features[first], st.Mean[first], st.Scale[first])
		}
	}
	return nil
}

// checkModel checks the model's shape, that it has what is frozen, and that its parameters fit into a blob.
func checkModel[T learner.Float](t wire.Task) error {
	a := buildArchitecture(t)
	if err := a.Validate(); err != nil {
		return err
	}
	if len(t.Model.FrozenTensors) > 0 && len(a.TensorRanges(t.Model.FrozenTensors)) == 0 {
		return fmt.Errorf("frozen: the model has no tensors %q", t.Model.FrozenTensors)
	}
	if err := checkPersonalTensors(a, t.Personal.PersonalTensors); err != nil {
		return err
	}
	if n := tensorSchemaOf[T](a.Layout()).VectorByteCount(); n > wire.MaxBlobBytes {
		return fmt.Errorf("the model has %d bytes, more than %d", n, wire.MaxBlobBytes)
	}
	return nil
}

// checkExternalModel checks that a model whose steps nobody here takes asks for nothing that only those who take them
// do.
func checkExternalModel(t *wire.Task) error {
	x, training := &t.External, &t.Training
	other := func(t wire.TensorSpec) bool { return t.DType != wire.Float32 }
	switch {
	case slices.ContainsFunc(x.TrainedTensors, other):
		return errors.New("external: want tensors of float32")
	case !x.IsEnabled():
		if len(x.TrainedTensors) > 0 {
			return errors.New("external: tensors without a trainer")
		}
		return nil
	case training.ExchangeKind != spec.ExchangeParameters:
		return errors.New("external: goes with the exchange of parameters")
	case training.LocalStepProbability > 0 && training.LocalStepProbability < 1,
		training.GradientNoise.Law != spec.NoiseNone:
		return errors.New("external: its program takes each step, and adds no noise")
	case len(t.Standardization.Mean) > 0 || len(t.Recipe.Inputs) > 0:
		return errors.New("external: the rows are the program's, and there are none to standardize or to make")
	case t.FinetuneSteps > 0 || t.Personal.UsesDitto || len(t.Model.FrozenTensors) > 0:
		return errors.New("external: its program trains the whole model, and no other one")
	}
	return nil
}

func checkColumns(t wire.Task) error {
	if t.External.IsEnabled() {
		if len(t.Features) > 0 || t.TargetColumn != "" {
			return errors.New("external: the rows are the program's: there are no features, and no target")
		}
		return nil
	}
	switch wants := t.ModelKind().HasTarget(); {
	case !wants && t.TargetColumn != "":
		return fmt.Errorf("has the target %q, and its model is of the kind %s, which has none", t.TargetColumn,
			t.ModelKind())
	case len(t.Features) == 0 || wants && t.TargetColumn == "":
		return errors.New("needs at least one feature and a target")
	}
	seen := map[string]bool{t.TargetColumn: true}
	for _, f := range t.Features {
		if f == "" || seen[f] {
			return fmt.Errorf("column %q is empty or named twice", f)
		}
		seen[f] = true
	}
	return nil
}

// checkRecipe checks how rows are made of readings, if they are.
func checkRecipe(t *wire.Task) error {
	var found spec.ProblemList
	r := &t.Recipe
	if r.Check(&found, "task"); found.ProblemCount() == 0 && len(r.Inputs) > 0 {
		r.CheckColumns(&found, "task", t.Features, t.TargetColumn)
		found.Require(slices.Equal(r.ExpandFeatures(t.Features), t.Features), "task.features",
			"has hour, weekday or an input with classes; want each of their columns")
	}
	return found.Err()
}

func checkMixing(t *wire.Task) error {
	m := &t.Mixing
	switch {
	case m.IntervalSteps == 0:
		if *m != (wire.MixingSettings{}) {
			return errors.New("mixing: never, and yet there are settings for it")
		}
		return nil
	case t.Training.ExchangeKind != spec.ExchangeParameters:
		return errors.New("mixing: goes with the exchange of parameters, not of gradients")
	case t.Training.NormalizesStepSize:
		return errors.New("mixing: the step size is per local step, and not divided by their number (feddec Alg. 1)")
	case t.Training.MaxLocalSteps%m.IntervalSteps != 0:
		return fmt.Errorf("mixing: every %d of %d local steps, which it does not divide", m.IntervalSteps,
			t.Training.MaxLocalSteps)
	case m.SnapshotRetryMillis == 0 || m.SnapshotCodec == "":
		return errors.New("mixing: a repeat and a codec are needed")
	}
	if err := m.SnapshotCodec.ValidateForMixing(); err != nil {
		return fmt.Errorf("mixing: codec: %w", err)
	}
	return nil
}

// checkStepCorrection checks what changes local steps, or what is sent of them, beside the gradient.
func checkStepCorrection(t *wire.Task) error {
	p := t.Training.Proximal
	switch {
	case !(p >= 0) || math.IsInf(p, 1):
		return fmt.Errorf("proximal is %v; it must be finite and not negative", p)
	case p > 0 && t.Training.ExchangeKind != spec.ExchangeParameters:
		return errors.New("proximal: goes with the exchange of parameters; a gradient is taken at the anchor itself")
	case p > 0 && t.Mixing.HasEndlessBlocks:
		return errors.New("proximal: blocks without an end have no model of the server to stay near")
	}
	if _, keeps := t.Training.UpdateCodec.TopKShare(); keeps && (t.Training.ExchangeKind != spec.ExchangeParameters ||
		t.Mixing.HasEndlessBlocks) {
		return errors.New("codec top_k: goes with the exchange of parameters, and not with blocks without an end")
	}
	return nil
}

func buildArchitecture(t wire.Task) learner.Architecture {
	if t.External.IsEnabled() {
		a := learner.Architecture{Kind: spec.ModelExternal, Outputs: 1, Risk: spec.LossSquared}
		for _, tensor := range t.External.TrainedTensors {
			shape := make([]int, len(tensor.Shape))
			for i, n := range tensor.Shape {
				shape[i] = int(n)
			}
			a.ExternalTensors = append(a.ExternalTensors, learner.TensorSpec{Name: tensor.Name, Shape: shape})
		}
		return a
	}
	a := learner.Architecture{
		Kind: t.Model.Kind, Inputs: len(t.Features), Outputs: int(t.Model.Outputs), HasBias: t.Model.HasBias,
		Ridge: t.Model.Ridge, Activation: t.Model.Activation, Risk: t.Model.Risk, HuberDelta: t.Model.HuberDelta,
	}
	for _, h := range t.Model.HiddenUnits {
		a.HiddenUnits = append(a.HiddenUnits, int(h))
	}
	c := &t.Model.Convolution
	a.Convolution = spec.Convolution{InputChannels: int(c.InputChannels), KernelSteps: int(c.KernelSteps),
		PoolSteps: int(c.PoolSteps)}
	for _, n := range c.FiltersPerLayer {
		a.Convolution.FiltersPerLayer = append(a.Convolution.FiltersPerLayer, int(n))
	}
	return a
}

// GradientConfig returns how an agent makes its stochastic gradient.
func (p *CompiledTask[T]) GradientConfig() learner.GradientConfig {
	t := &p.Task.Training
	return learner.GradientConfig{
		BatchSize: int(t.BatchSize), LocalStepProbability: t.LocalStepProbability, Noise: t.GradientNoise,
	}
}

// StepCountPolicy returns how E_k follows from a device's speed.
func (p *CompiledTask[T]) StepCountPolicy() learner.StepCountPolicy {
	t := &p.Task.Training
	return learner.StepCountPolicy{MinSteps: int(t.MinLocalSteps), MaxSteps: int(t.MaxLocalSteps),
		TimeBudget: time.Duration(t.StepTimeBudgetMillis) * time.Millisecond}
}

// Standardization returns the task's standardisation; it has no columns before
// the statistics round.
func (p *CompiledTask[T]) Standardization() learner.Standardization {
	s := &p.Task.Standardization
	return learner.Standardization{Mean: s.Mean, Scale: s.Scale, Clip: s.Clip}
}

// RowRecipe returns how rows are made of readings; nil if agents have rows.
func (p *CompiledTask[T]) RowRecipe() *spec.RowRecipe {
	if len(p.Task.Recipe.Inputs) == 0 {
		return nil
	}
	return &p.Task.Recipe
}

// UpdateSchema returns the layout of the vectors that a round of that kind sends in: of the parameters those that
// agents share.
func (p *CompiledTask[T]) UpdateSchema(kind wire.RoundKind) wire.TensorSchema {
	if kind == wire.KindStatistics {
		m := uint32(len(p.Task.Features) + 1)
		return wire.TensorSchema{
			{Name: "count", DType: wire.Float64, Shape: []uint32{1}},
			{Name: "mean", DType: wire.Float64, Shape: []uint32{m}},
			{Name: "squares", DType: wire.Float64, Shape: []uint32{m}},
		}
	}
	return tensorSchemaOf[T](p.parameterSplit.SharedLayout)
}

// tensorSchemaOf returns the layout of tensors of parameters.
func tensorSchemaOf[T learner.Float](layout []learner.TensorSpec) wire.TensorSchema {
	dtype := wire.Float32
	if len(wire.AppendVector[T](nil, []T{0})) == 8 {
		dtype = wire.Float64
	}
	var s wire.TensorSchema
	for _, t := range layout {
		tensor := wire.TensorSpec{Name: t.Name, DType: dtype}
		for _, n := range t.Shape {
			tensor.Shape = append(tensor.Shape, uint32(n))
		}
		s = append(s, tensor)
	}
	return s
}

// InitialParameters returns w_0, of all parameters.
func (p *CompiledTask[T]) InitialParameters(seed uint64) []T {
	w := make([]T, p.Model.Architecture().ParameterCount())
	p.Model.InitParameters(w, rand.New(rand.NewPCG(seed, 0)))
	return w
}

// PrepareSamples brings an agent's raw samples into the task's terms, in place:
// labelHistory checked, and columns standardised once there is a standardisation.
func (p *CompiledTask[T]) PrepareSamples(s *learner.Samples[T]) error {
	return p.NewRowPreparer().PrepareSamples(s, true)
}

// RowPreparer brings the rows of a source into a task's terms.
type RowPreparer[T learner.Float] struct {
	compiledTask *CompiledTask[T]
	labelHistory learner.LabelHistory
}

// NewRowPreparer returns what prepares samples of one source.
func (p *CompiledTask[T]) NewRowPreparer() *RowPreparer[T] { return &RowPreparer[T]{compiledTask: p} }

// PrepareSamples is [CompiledTask.PrepareSamples] for samples that come one batch after another; with first they begin
// anew. A batch that it refuses counts as not come, and may have been changed.
func (r *RowPreparer[T]) PrepareSamples(s *learner.Samples[T], first bool) error {
	before := r.labelHistory
	if first {
		before = learner.LabelHistory{}
	}
	all, err := s.MapLabels(r.compiledTask.Model.Architecture(), before)
	if err != nil {
		return err
	}
	if st := r.compiledTask.Standardization(); len(st.Mean) > 0 {
		if err := s.Standardize(st); err != nil {
			return err
		}
	}
	r.labelHistory = all
	return nil
}

// PrepareRowsAgain does the same to rows that were prepared before, as they were then. It may be called from several
// goroutines.
func (r *RowPreparer[T]) PrepareRowsAgain(x, y []T) {
	r.compiledTask.Model.MapAndStandardizeAgain(r.compiledTask.Standardization(), x, y)
}

// WithStandardization returns the task with the standardisation that the moments of the devices of a statistics round
// ask for, and the devices whose data lie far from the others': see [learner.CombineIntoStandardization], which calls
// each, and [learner.Architecture.PoolChannelMoments].
func (p *CompiledTask[T]) WithStandardization(devices int, each func(take func(*learner.ColumnMoments)) error,
	clip float64) (wire.Task, []learner.DeviatingDevice, error) {
	a := p.Model.Architecture()
	pooled := func(take func(*learner.ColumnMoments)) error {
		return each(func(m *learner.ColumnMoments) { take(a.PoolChannelMoments(m)) })
	}
	st, far, err := learner.CombineIntoStandardization(devices, len(p.Task.Features)+1, pooled, a.Risk, clip)
	if err == nil {
		if !p.Task.ModelKind().HasTarget() {
			st.KeepTargetUnscaled()
		}
		err = st.Validate()
	}
	if err != nil {
		return wire.Task{}, nil, fmt.Errorf("the agents' statistics: %w", err)
	}
	t := p.Task
	t.Features = slices.Clone(t.Features)
	t.Standardization = wire.Standardization{Mean: st.Mean, Scale: st.Scale, Clip: st.Clip}
	return t, far, nil
}
