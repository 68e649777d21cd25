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

// CompiledTask is a validated task that is ready for training. It owns scratch memory, so it must not be used
// concurrently.
type CompiledTask[T learner.Float] struct {
	Task     wire.Task
	Schedule learner.StepSizeSchedule
	Model    *learner.Model[T]

	parameterSplit    *learner.ParameterSplit // division of the parameters into shared and personal parameters
	recentRiskSamples [2]riskSample[T]        // cache of the last two samples returned by RiskSample
}

// Validate checks a task without compiling it. The error describes every invalid field, since an erroneous coordinator
// may send anything. T is the type of the parameters, which limits the size of the model.
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

// Compile validates a task and prepares it for training. It returns the same errors as [Validate].
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

// newCompiledTask returns a CompiledTask whose Model is not set.
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
		return fmt.Errorf("standardization has %d columns, but the task has %d features and one target", last+1,
			len(t.Features))
	}
	if !t.ModelKind().HasTarget() && (st.Mean[last] != 0 || st.Scale[last] != 1) {
		return fmt.Errorf("standardization has mean %v and scale %v for the target, but must have 0 and 1 because "+
			"the model has no target", st.Mean[last], st.Scale[last])
	}
	return checkChannelStandardization(st, t)
}

// checkChannelStandardization checks that all time steps of a conv1d channel have the same standardisation. Filters
// that slide over the channel require this, and so does the conversion of the model to another standardisation.
func checkChannelStandardization(st learner.Standardization, t wire.Task) error {
	channels := int(t.Model.Convolution.InputChannels)
	if channels < 1 || len(t.Features)%channels != 0 {
		return nil // The model is not a conv1d, or checkModel has already reported the error.
	}
	steps := len(t.Features) / channels
	for j := range t.Features {
		first := j / steps * steps
		if st.Mean[j] != st.Mean[first] || st.Scale[j] != st.Scale[first] {
			return fmt.Errorf("standardization of %q has mean %v and scale %v, but %q in the same channel has %v and "+
				"%v: all features of a channel must have equal values", t.Features[j], st.Mean[j], st.Scale[j],
				t.Features[first], st.Mean[first], st.Scale[first])
		}
	}
	return nil
}

// checkModel validates the model's shape, the names of frozen tensors, and the size of the parameters.
func checkModel[T learner.Float](t wire.Task) error {
	a := buildArchitecture(t)
	if err := a.Validate(); err != nil {
		return err
	}
	if len(t.Model.FrozenTensors) > 0 && len(a.TensorRanges(t.Model.FrozenTensors)) == 0 {
		return fmt.Errorf("frozen: the model does not contain the tensors %q", t.Model.FrozenTensors)
	}
	if err := checkPersonalTensors(a, t.Personal.PersonalTensors); err != nil {
		return err
	}
	if n := tensorSchemaOf[T](a.Layout()).VectorByteCount(); n > wire.MaxBlobBytes {
		return fmt.Errorf("the model has %d bytes, which exceeds the limit of %d", n, wire.MaxBlobBytes)
	}
	return nil
}

// checkExternalModel checks that the task of an external model sets no options that the agent itself would have to
// implement.
func checkExternalModel(t *wire.Task) error {
	x, training := &t.External, &t.Training
	other := func(t wire.TensorSpec) bool { return t.DType != wire.Float32 }
	switch {
	case slices.ContainsFunc(x.TrainedTensors, other):
		return errors.New("external: all tensors must have the type float32")
	case !x.IsEnabled():
		if len(x.TrainedTensors) > 0 {
			return errors.New("external: tensors are set but no trainer is named")
		}
		return nil
	case training.ExchangeKind != spec.ExchangeParameters:
		return errors.New("external: the task must exchange parameters instead of gradients")
	case training.LocalStepProbability > 0 && training.LocalStepProbability < 1,
		training.GradientNoise.Law != spec.NoiseNone:
		return errors.New("external: step probability and gradient noise are not supported, because the external " +
			"trainer performs the steps")
	case len(t.Standardization.Mean) > 0 || len(t.Recipe.Inputs) > 0:
		return errors.New("external: standardization and inputs are not supported, because the external trainer " +
			"reads its own rows")
	case t.FinetuneSteps > 0 || t.Personal.UsesDitto || len(t.Model.FrozenTensors) > 0:
		return errors.New("external: finetune, ditto and frozen tensors are not supported, because the external " +
			"trainer trains the whole model")
	}
	return nil
}

func checkColumns(t wire.Task) error {
	if t.External.IsEnabled() {
		if len(t.Features) > 0 || t.TargetColumn != "" {
			return errors.New("external: features and target must be empty, because the external trainer reads its " +
				"own rows")
		}
		return nil
	}
	switch wants := t.ModelKind().HasTarget(); {
	case !wants && t.TargetColumn != "":
		return fmt.Errorf("the target is %q, but a model of the kind %s has no target: remove it", t.TargetColumn,
			t.ModelKind())
	case len(t.Features) == 0 || wants && t.TargetColumn == "":
		return errors.New("the task requires at least one feature and a target")
	}
	seen := map[string]bool{t.TargetColumn: true}
	for _, f := range t.Features {
		if f == "" || seen[f] {
			return fmt.Errorf("column name %q is empty or a duplicate", f)
		}
		seen[f] = true
	}
	return nil
}

// checkRecipe validates the rules for making rows from readings, if the task has them.
func checkRecipe(t *wire.Task) error {
	var found spec.ProblemList
	r := &t.Recipe
	if r.Check(&found, "task"); found.ProblemCount() == 0 && len(r.Inputs) > 0 {
		r.CheckColumns(&found, "task", t.Features, t.TargetColumn)
		found.Require(slices.Equal(r.ExpandFeatures(t.Features), t.Features), "task.features",
			"the list contains hour, weekday or an input with classes: replace this feature by its columns")
	}
	return found.Err()
}

func checkMixing(t *wire.Task) error {
	m := &t.Mixing
	switch {
	case m.IntervalSteps == 0:
		if *m != (wire.MixingSettings{}) {
			return errors.New("mixing: the interval is 0 but other mixing settings are present: remove them or set " +
				"the interval")
		}
		return nil
	case t.Training.ExchangeKind != spec.ExchangeParameters:
		return errors.New("mixing: the task must exchange parameters instead of gradients")
	case t.Training.NormalizesStepSize:
		return errors.New("mixing: the step size must not be normalized by the number of local steps (feddec Alg. 1)")
	case t.Training.MaxLocalSteps%m.IntervalSteps != 0:
		return fmt.Errorf("mixing: the interval of %d local steps must divide the %d local steps of a round",
			m.IntervalSteps,
			t.Training.MaxLocalSteps)
	case m.SnapshotRetryMillis == 0 || m.SnapshotCodec == "":
		return errors.New("mixing: a retry interval and a codec are required")
	}
	if err := m.SnapshotCodec.ValidateForMixing(); err != nil {
		return fmt.Errorf("mixing: codec: %w", err)
	}
	return nil
}

// checkStepCorrection validates the proximal term of local steps and the codec top_k.
func checkStepCorrection(t *wire.Task) error {
	p := t.Training.Proximal
	switch {
	case !(p >= 0) || math.IsInf(p, 1):
		return fmt.Errorf("proximal is %v, but must be finite and not negative", p)
	case p > 0 && t.Training.ExchangeKind != spec.ExchangeParameters:
		return errors.New("proximal: the task must exchange parameters, because a gradient is computed at the anchor " +
			"itself")
	case p > 0 && t.Mixing.HasEndlessBlocks:
		return errors.New("proximal: not supported with endless blocks, because they use no server model as an anchor")
	}
	if _, keeps := t.Training.UpdateCodec.TopKShare(); keeps && (t.Training.ExchangeKind != spec.ExchangeParameters ||
		t.Mixing.HasEndlessBlocks) {
		return errors.New("codec top_k: the task must exchange parameters and must not use endless blocks")
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

// GradientConfig returns the configuration with which an agent computes stochastic gradients.
func (p *CompiledTask[T]) GradientConfig() learner.GradientConfig {
	t := &p.Task.Training
	return learner.GradientConfig{
		BatchSize: int(t.BatchSize), LocalStepProbability: t.LocalStepProbability, Noise: t.GradientNoise,
	}
}

// StepCountPolicy returns the policy that determines the number of local steps from a device's speed.
func (p *CompiledTask[T]) StepCountPolicy() learner.StepCountPolicy {
	t := &p.Task.Training
	return learner.StepCountPolicy{MinSteps: int(t.MinLocalSteps), MaxSteps: int(t.MaxLocalSteps),
		TimeBudget: time.Duration(t.StepTimeBudgetMillis) * time.Millisecond}
}

// Standardization returns the task's standardisation. It has no columns before the statistics round has ended.
func (p *CompiledTask[T]) Standardization() learner.Standardization {
	s := &p.Task.Standardization
	return learner.Standardization{Mean: s.Mean, Scale: s.Scale, Clip: s.Clip}
}

// RowRecipe returns the rules for making rows from readings, or nil if the sources contain complete rows.
func (p *CompiledTask[T]) RowRecipe() *spec.RowRecipe {
	if len(p.Task.Recipe.Inputs) == 0 {
		return nil
	}
	return &p.Task.Recipe
}

// UpdateSchema returns the layout of the vectors that agents send in a round of the given kind. In a training round it
// contains only the shared parameters.
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

// tensorSchemaOf converts the layout of the parameters to a schema for messages.
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

// InitialParameters returns the initial values w_0 of all parameters, which depend on the seed.
func (p *CompiledTask[T]) InitialParameters(seed uint64) []T {
	w := make([]T, p.Model.Architecture().ParameterCount())
	p.Model.InitParameters(w, rand.New(rand.NewPCG(seed, 0)))
	return w
}

// PrepareSamples validates the labels of an agent's samples and, if the task has a standardisation, standardises the
// columns in place.
func (p *CompiledTask[T]) PrepareSamples(s *learner.Samples[T]) error {
	return p.NewRowPreparer().PrepareSamples(s, true)
}

// RowPreparer prepares the rows of a source for training.
type RowPreparer[T learner.Float] struct {
	compiledTask *CompiledTask[T]
	labelHistory learner.LabelHistory
}

// NewRowPreparer returns a RowPreparer for one source.
func (p *CompiledTask[T]) NewRowPreparer() *RowPreparer[T] { return &RowPreparer[T]{compiledTask: p} }

// PrepareSamples prepares a batch of samples like [CompiledTask.PrepareSamples]. The parameter first is true for the
// first batch. If an error occurs, the batch is not recorded, but its samples may have been changed.
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

// PrepareRowsAgain repeats the preparation of rows that PrepareSamples has accepted before. It is safe for concurrent
// use.
func (r *RowPreparer[T]) PrepareRowsAgain(x, y []T) {
	r.compiledTask.Model.MapAndStandardizeAgain(r.compiledTask.Standardization(), x, y)
}

// WithStandardization returns a copy of the task with the standardisation that is computed from the devices' moments,
// and the devices whose data deviate strongly. See [learner.CombineIntoStandardization] for the requirements of the
// function each, and [learner.Architecture.PoolChannelMoments].
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
		return wire.Task{}, nil, fmt.Errorf("invalid statistics from the agents: %w", err)
	}
	t := p.Task
	t.Features = slices.Clone(t.Features)
	t.Standardization = wire.Standardization{Mean: st.Mean, Scale: st.Scale, Clip: st.Clip}
	return t, far, nil
}
