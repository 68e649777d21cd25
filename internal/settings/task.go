package settings

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// Task configures the training: columns, model, loss and local steps.
type Task struct {
	Name     string     `yaml:"name"`
	Features []string   `yaml:"features"`
	Target   string     `yaml:"target"`
	Model    spec.Model `yaml:"model"`

	Exchange       spec.ExchangeKind    `yaml:"exchange"`
	UpdateCodec    spec.Codec           `yaml:"codec"` // codec that compresses the updates
	BatchSize      int                  `yaml:"batch_size"`
	StepSampling   StepSampling         `yaml:"response"`
	GradientNoise  spec.GradientNoise   `yaml:"gradient_noise"`
	StepSize       spec.StepSize        `yaml:"step_size"`
	ProximalWeight float64              `yaml:"proximal"` // weight ρ_p of the proximal term in the FedProx algorithm
	Steps          LocalStepLimits      `yaml:"steps"`
	Mixing         Mixing               `yaml:"mixing"` // mixing settings for round.algorithm feddec
	Personal       spec.PersonalOptions `yaml:"personal"`
	Finetune       spec.FinetuneOptions `yaml:"finetune"`

	// TimeGrid and Inputs define how the agent makes rows from sensor readings. If they are not set, the features and
	// the target are columns of a file.
	TimeGrid spec.TimeGrid      `yaml:"grid"`
	Inputs   []spec.InputSeries `yaml:"inputs"`

	MinRows     int  `yaml:"min_rows"` // minimum number of rows with which a device participates
	Standardize bool `yaml:"standardize"`
	// RestandardizeAtVersions lists the model versions of a run at which the columns are standardised again.
	RestandardizeAtVersions []int `yaml:"standardize_at"`
	// ClipStandardDeviations is the limit, in standard deviations, to which standardised features are clipped. Zero
	// disables clipping.
	ClipStandardDeviations float64 `yaml:"clip"`
}

// taskAndRoundFile is the part of coordinator.yaml from which ReadTask reads a task. The section round is included,
// because the checks of a task depend on whether the agents mix.
type taskAndRoundFile struct {
	Task  Task         `yaml:"task"`
	Round round.Config `yaml:"round"`
}

// Validate reports every problem of the task, each with its configuration key.
func (f *taskAndRoundFile) Validate() error {
	var c spec.ProblemList
	f.Task.Check(&c, f.Round.Algorithm == spec.FedDec)
	return c.Err()
}

// ReadTask reads a task from a file and returns it in the form in which the coordinator announces tasks, without mixing
// settings. The file is a coordinator.yaml or the output of `coordinator task show`. Each error contains the line of
// the invalid key.
func ReadTask(path string) (wire.Task, error) {
	f := taskAndRoundFile{DefaultTask(), round.DefaultConfig()}
	err := config.Load(&f, config.Source{Path: path, IgnoreForeignKeys: true})
	return f.Task.ToWireTask(false), err
}

// StepSampling configures that the agents skip random local steps.
type StepSampling struct {
	// probability δ that a local step is executed; executed steps are scaled by 1/δ
	StepProbability float64 `yaml:"probability"`
}

// LocalStepLimits limits the number of local steps E_k that agent k takes in a round.
type LocalStepLimits struct {
	TimeBudget time.Duration `yaml:"budget"` // time for the local steps of a round
	Min        int           `yaml:"min"`
	Max        int           `yaml:"max"`
}

// Mixing configures how agents mix (average their parameters with neighbours) between local steps. With mixing, a round
// has steps.max local steps.
type Mixing struct {
	StepsPerMixing int `yaml:"every"` // number of local steps between two mixing steps
	// StepsPerServerAverage is H, the number of local steps after which the server's average replaces the agents'
	// models; −1 means steps.max, 0 means never.
	StepsPerServerAverage int `yaml:"server_every"`
	// SnapshotTimeout is the maximum time that a local step waits for the neighbours' snapshots. Zero means no limit.
	SnapshotTimeout time.Duration `yaml:"wait"`
	// time after which the agent requests a missing snapshot again
	SnapshotRequestInterval time.Duration `yaml:"repeat"`
	LateSnapshotTimeout     time.Duration `yaml:"drain"` // time for late snapshots after the last step
	SnapshotCodec           spec.Codec    `yaml:"codec"`
	// ClipDistance is the limit τ to which the difference between the parameters of two neighbours is clipped. If it is
	// set, edges whose distance is an outlier are also excluded. Zero disables both.
	ClipDistance float64 `yaml:"clip"`
	// SealsNeighborTraffic encrypts the messages between neighbours. It may be false only on a trusted test bench.
	SealsNeighborTraffic bool `yaml:"sealed"`
}

func (m *Mixing) toWireSettings() wire.MixingSettings {
	ms := func(d time.Duration) uint32 { return uint32(d.Milliseconds()) }
	return wire.MixingSettings{IntervalSteps: uint32(m.StepsPerMixing), SnapshotWaitMillis: ms(m.SnapshotTimeout),
		SnapshotRetryMillis: ms(m.SnapshotRequestInterval), LateSnapshotMillis: ms(m.LateSnapshotTimeout),
		SnapshotCodec: m.SnapshotCodec, IsUnsealed: !m.SealsNeighborTraffic,
		HasEndlessBlocks: m.StepsPerServerAverage == 0}
}

func (m *Mixing) check(c *spec.ProblemList, t *Task) {
	c.Require(m.StepsPerMixing >= 1 && t.Steps.Max%max(m.StepsPerMixing, 1) == 0, "task.mixing.every",
		"must be at least 1 and divide task.steps.max (%d), but is %d", t.Steps.Max, m.StepsPerMixing)
	for _, d := range []struct {
		key   string
		value time.Duration
		least time.Duration
	}{{"wait", m.SnapshotTimeout, 0}, {"repeat", m.SnapshotRequestInterval, time.Millisecond}, {"drain",
		m.LateSnapshotTimeout,
		0}} {
		c.Require(d.value >= d.least && d.value <= time.Hour && d.value%time.Millisecond == 0, "task.mixing."+d.key,
			"must be between %s and 1h, in whole milliseconds, but is %s", d.least, d.value)
	}
	c.Require(m.StepsPerServerAverage == -1 || m.StepsPerServerAverage == 0 || m.StepsPerServerAverage == t.Steps.Max,
		"task.mixing.server_every",
		"must be 0 (never), -1 or task.steps.max (%d), the number of local steps of a round, but is %d", t.Steps.Max,
		m.StepsPerServerAverage)
	c.Require(m.SnapshotTimeout > 0 || !m.toWireSettings().HasEndlessBlocks, "task.mixing.wait",
		"must be above 0 if server_every is 0; otherwise an agent would wait forever for a neighbour that is offline")
	c.AddError("task.mixing.codec", m.SnapshotCodec.ValidateForMixing())
	c.Require(m.ClipDistance >= 0 && !math.IsInf(m.ClipDistance, 1), "task.mixing.clip",
		"must be finite and not negative, but is %v",
		m.ClipDistance)
}

// DefaultTask returns the defaults of the task section.
func DefaultTask() Task {
	return Task{
		Exchange: spec.ExchangeParameters, UpdateCodec: spec.CodecRaw, BatchSize: 32,
		StepSampling:  StepSampling{StepProbability: 1},
		GradientNoise: spec.GradientNoise{Law: spec.NoiseNone},
		StepSize:      spec.StepSize{Constant: 0.4, NormalizesStepSize: true},
		Steps:         LocalStepLimits{TimeBudget: 10 * time.Second, Min: 1, Max: 100},
		Mixing: Mixing{StepsPerMixing: 1, StepsPerServerAverage: -1, SnapshotTimeout: time.Second,
			SnapshotRequestInterval: 300 * time.Millisecond,
			LateSnapshotTimeout:     5 * time.Second, SnapshotCodec: spec.CodecRaw, SealsNeighborTraffic: true},
		Personal: spec.DefaultPersonalOptions(),
		MinRows:  10, Standardize: true, ClipStandardDeviations: 6,
		Model: spec.Model{Kind: spec.ModelLinear, Activation: spec.ActivationTanh, Risk: spec.LossSquared,
			HasBias: true},
	}
}

// maxLocalSteps is the maximum of all step counts. Without it, the wire protocol would truncate values that need more
// than 32 bits.
const maxLocalSteps = 1_000_000_000

// Check reports every problem of the task, each with its configuration key. mixes is true if the agents mix
// (round.algorithm feddec).
func (t *Task) Check(c *spec.ProblemList, mixes bool) {
	if mixes {
		t.Mixing.check(c, t)
	}
	c.Require(t.Name != "" && len(t.Name) <= wire.MaxName, "task.name", "must have 1 to %d bytes, but has %d",
		wire.MaxName,
		len(t.Name))
	t.checkColumns(c)
	t.Model.Check(c, "task.model")
	r := t.recipe()
	t.Model.CheckFeatureCount(c, "task.model", len(r.ExpandFeatures(t.Features)))
	spec.CheckPersonalOptions(c, "task.personal", &t.Personal)
	t.Model.CheckTensorNames(c, "task.personal.layers", t.Personal.Layers, t.externalTensorNames())
	spec.CheckFinetuneOptions(c, "task.finetune", &t.Finetune)
	c.Require(t.Model.Risk != spec.LossFullSquared, "task.model.risk",
		"must be %s, but is %q: agents support no other losses", spec.JoinWithOr(spec.DeviceLossKinds()), t.Model.Risk)
	c.AddError("task.exchange", t.Exchange.Validate())
	c.AddError("task.codec", t.UpdateCodec.Validate())
	c.Require(t.BatchSize >= 0 && t.BatchSize <= 65536, "task.batch_size",
		"must be between 0 (all rows) and 65536, but is %d", t.BatchSize)
	spec.CheckLocalStepProbability(c, "task.response.probability", t.StepSampling.StepProbability)
	t.GradientNoise.Check(c, "task.gradient_noise")
	c.Require(t.ProximalWeight >= 0 && !math.IsInf(t.ProximalWeight, 1), "task.proximal",
		"must be finite and not negative, but is %v",
		t.ProximalWeight)
	c.Require(t.MinRows >= 1, "task.min_rows", "must be at least 1, but is %d", t.MinRows)
	c.Require(t.Standardize || len(t.RestandardizeAtVersions) == 0, "task.standardize_at",
		"is set, but task.standardize is false: set it to true, or remove task.standardize_at")
	c.Require(!mixes || t.Mixing.StepsPerServerAverage != 0 || len(t.RestandardizeAtVersions) == 0,
		"task.standardize_at",
		"cannot be combined with task.mixing.server_every: 0, because agents never receive the server's model")
	for _, v := range t.RestandardizeAtVersions {
		c.Require(v >= 1, "task.standardize_at", "must contain only model versions of at least 1, but contains %d", v)
	}
	c.Require(t.ClipStandardDeviations >= 0, "task.clip", "must not be negative, but is %v", t.ClipStandardDeviations)
	t.StepSize.Check(c, "task.step_size")
	if size := t.StepSize; size.IsDiminishing { // the constants of a diminishing step size have no defaults
		c.Require(size.StrongConvexity > 0, "task.step_size.strong_convexity",
			"must be a positive number, but is %v", size.StrongConvexity)
		c.Require(size.DecayOffset > 0 || size.Smoothness >= size.StrongConvexity, "task.step_size.smoothness",
			"is %v, but must be at least task.step_size.strong_convexity (%v) unless task.step_size.gamma is set",
			size.Smoothness,
			size.StrongConvexity)
	}
	c.Require(t.Steps.TimeBudget >= time.Millisecond && t.Steps.TimeBudget <= 24*time.Hour, "task.steps.budget",
		"must be between 1ms and 24h, but is %s", t.Steps.TimeBudget)
	c.Require(t.Steps.Min >= 1, "task.steps.min", "must be at least 1, but is %d", t.Steps.Min)
	c.Require(t.Steps.Max >= t.Steps.Min, "task.steps.max", "must be at least task.steps.min (%d), but is %d",
		t.Steps.Min,
		t.Steps.Max)
	c.Require(t.Steps.Max <= maxLocalSteps, "task.steps.max", "must be at most %d, but is %d",
		maxLocalSteps, t.Steps.Max)
	if c.ProblemCount() == 0 {
		c.AddError("task", task.Validate[float32](t.ToWireTask(mixes)))
	}
}

// HasExternalModel reports whether external programs on the devices train the model, with rows of their own.
func (t *Task) HasExternalModel() bool { return t.Model.Kind == spec.ModelExternal }

// StartsWithStatistics reports whether a run starts with a statistics round, which computes the column statistics for
// standardisation.
func (t *Task) StartsWithStatistics() bool { return t.Standardize && !t.HasExternalModel() }

func (t *Task) checkColumns(c *spec.ProblemList) {
	if t.HasExternalModel() {
		const own = "is set, but the program of an external model reads its own data: remove this key"
		c.Require(len(t.Features) == 0, "task.features", own)
		c.Require(t.Target == "", "task.target", own)
		c.Require(len(t.Inputs) == 0, "task.inputs", own)
		c.Require(t.StepSampling.StepProbability == 1, "task.response.probability",
			"must be 1, because the program of an external model executes every step, but is %v",
			t.StepSampling.StepProbability)
		c.Require(t.GradientNoise.Law == spec.NoiseNone, "task.gradient_noise.law",
			"must be none, because the program of an external model adds no noise, but is %s", t.GradientNoise.Law)
		_, err := t.externalTensorSchema()
		c.AddError("task.model.initial", err)
		return
	}
	c.Require(len(t.Features) > 0, "task.features", "must not be empty: set it to the names of the input columns")
	if t.Model.Kind.HasTarget() {
		c.Require(t.Target != "", "task.target", "must not be empty: set it to the name of the column to predict")
	} else {
		c.Require(t.Target == "", "task.target", "is %q, but a model of kind %s has no target column: remove this key",
			t.Target, t.Model.Kind)
	}
	t.checkRecipe(c)
}

// externalTensorSchema returns the tensors of an external model, in the order of its file.
func (t *Task) externalTensorSchema() (wire.TensorSchema, error) {
	if t.Model.InitialModelFile == "" {
		return nil, nil // the missing file has already been reported as a problem
	}
	tensors, err := store.LocalDisk.ReadSafetensorsLayout(t.Model.InitialModelFile)
	if err != nil {
		return nil, err
	}
	var s wire.TensorSchema
	for _, has := range tensors {
		if has.DType != "F32" {
			return nil, fmt.Errorf("tensor %q has the type %s; all tensors must have the type F32", has.Name, has.DType)
		}
		tensor := wire.TensorSpec{Name: has.Name, DType: wire.Float32}
		for _, n := range has.Shape {
			tensor.Shape = append(tensor.Shape, uint32(n))
		}
		s = append(s, tensor)
	}
	switch {
	case len(s) > wire.MaxTensors:
		return nil, fmt.Errorf("the model has %d tensors, but the limit is %d", len(s), wire.MaxTensors)
	case s.VectorByteCount() > wire.MaxBlobBytes:
		return nil, fmt.Errorf("the model has %d bytes of parameters, but the limit is %d",
			s.VectorByteCount(), wire.MaxBlobBytes)
	}
	return s, nil
}

// externalTensorNames returns the names of the tensors of an external model, and the names of their layers. The name of
// a layer is the part of the tensor name before the first dot. externalTensorNames returns nil for other models.
func (t *Task) externalTensorNames() []string {
	if !t.HasExternalModel() {
		return nil
	}
	tensors, _ := t.externalTensorSchema() // Check reports this error
	names := []string{"last"}
	for _, tensor := range tensors {
		if layer, _, inside := strings.Cut(tensor.Name, "."); inside && !slices.Contains(names, layer) {
			names = append(names, layer)
		}
		names = append(names, tensor.Name)
	}
	return names
}

// recipe returns the recipe for making rows from readings, with all defaults set.
func (t *Task) recipe() spec.RowRecipe {
	return spec.RowRecipe{Grid: t.TimeGrid, Inputs: t.Inputs}.WithDefaults()
}

func (t *Task) checkRecipe(c *spec.ProblemList) {
	r, before := t.recipe(), c.ProblemCount()
	r.Check(c, "task")
	_, err := time.LoadLocation(r.Grid.TimeZone)
	c.AddError("task.grid.zone", err)
	if len(r.Inputs) > 0 && (t.Target != "") == t.Model.Kind.HasTarget() && c.ProblemCount() == before {
		r.CheckColumns(c, "task", t.Features, t.Target)
	}
}

// RowQuery returns the query for the rows of the task.
func (t *Task) RowQuery() data.RowQuery {
	w := data.RowQuery{Features: t.Features, Target: t.Target}
	if r := t.recipe(); len(r.Inputs) > 0 {
		w.Features, w.Recipe = r.ExpandFeatures(t.Features), &r
	}
	return w
}

// ToWireTask returns the task in the form in which it is announced, without standardisation moments. mixes is true if
// the agents mix.
func (t *Task) ToWireTask(mixes bool) wire.Task {
	schedule, recipe := learner.NewStepSizeSchedule(t.StepSize, t.Steps.Max), t.recipe()
	w := wire.Task{
		Name: t.Name, Features: recipe.ExpandFeatures(t.Features), TargetColumn: t.Target, Recipe: recipe,
		MinSamples: uint64(t.MinRows),
		Model: wire.ModelSpec{
			Outputs: uint32(t.Model.OutputCount()), Activation: t.Model.Activation,
			Risk: t.Model.EffectiveLossKind(), HasBias: t.Model.HasBias, Ridge: t.Model.Ridge,
			HuberDelta:    t.Model.HuberDelta,
			FrozenTensors: t.Model.FrozenTensors,
		},
		Training: wire.TrainingSettings{
			ExchangeKind: t.Exchange, UpdateCodec: t.UpdateCodec, BatchSize: uint32(t.BatchSize),
			LocalStepProbability: t.StepSampling.StepProbability, GradientNoise: t.GradientNoise,
			StepSize: schedule.ConstantStepSize, StrongConvexity: schedule.StrongConvexity,
			StepSizeDecayOffset: schedule.DecayOffset,
			NormalizesStepSize:  t.StepSize.NormalizesStepSize, Proximal: t.ProximalWeight,
			StepTimeBudgetMillis: uint32(t.Steps.TimeBudget.Milliseconds()), MinLocalSteps: uint32(t.Steps.Min),
			MaxLocalSteps: uint32(t.Steps.Max),
		},
	}
	if kind := t.Model.Kind; kind != spec.ModelKindFromLayers(len(t.Model.HiddenUnits), w.Model.Risk) {
		w.Model.Kind = kind
	}
	if mixes {
		w.Mixing = t.Mixing.toWireSettings()
	}
	w.FinetuneSteps = uint32(t.Finetune.Steps)
	if w.Personal.PersonalTensors = t.Personal.Layers; t.Personal.UsesDitto() {
		w.Personal.UsesDitto, w.Personal.DittoLambda = true, t.Personal.DittoLambda
	}
	if t.HasExternalModel() {
		w.External.TrainerName = t.Model.TrainerName
		w.External.TrainedTensors, _ = t.externalTensorSchema() // Check has already reported this error
		w.Model = wire.ModelSpec{Outputs: 1, Activation: spec.ActivationTanh, Risk: spec.LossSquared}
	}
	for _, n := range t.Model.HiddenUnits {
		w.Model.HiddenUnits = append(w.Model.HiddenUnits, uint32(n))
	}
	v := &t.Model.Convolution
	w.Model.Convolution = wire.ConvolutionLayers{InputChannels: uint32(v.InputChannels),
		KernelSteps: uint32(v.KernelSteps),
		PoolSteps:   uint32(v.PoolSteps)}
	for _, n := range v.FiltersPerLayer {
		w.Model.Convolution.FiltersPerLayer = append(w.Model.Convolution.FiltersPerLayer, uint32(n))
	}
	return w
}
