package wire

import (
	"cmp"

	"github.com/fedmesh/fedmesh/spec"
)

// Task describes what a federation learns and how. It is the content of a task blob.
type Task struct {
	Name         string
	Features     []string // names of the feature columns, in the order of the inputs of the model
	TargetColumn string
	// Recipe describes how rows are made from readings, including defaults. The zero value means that agents already
	// have rows.
	Recipe   spec.RowRecipe
	Model    ModelSpec
	Training TrainingSettings
	Mixing   MixingSettings
	Personal PersonalModelSettings
	External ExternalTraining
	// FinetuneSteps is the number of local steps by which an agent adapts a model before it makes predictions with it;
	// 0 means no adaptation.
	FinetuneSteps uint32
	// MinSamples is the minimum number of rows that an agent needs to participate.
	MinSamples uint64
	// Standardization holds the scaling of the columns. It is empty until the statistics round has ended.
	Standardization Standardization
	Extra           UnknownSections
}

// ModelSpec describes the architecture of a model. A linear model has no hidden layers.
type ModelSpec struct {
	// Kind is the kind of model. It is empty if the kind follows from the layers, see spec.ModelKindFromLayers.
	Kind spec.ModelKind
	// Convolution holds the filter layers of the kind conv1d. It is zero for all other kinds.
	Convolution ConvolutionLayers
	HiddenUnits []uint32
	Outputs     uint32
	Activation  spec.Activation
	Risk        spec.LossKind
	HasBias     bool
	Ridge       float64 // factor ρ of the ridge penalty (ρ/2)‖w‖² on the parameters w
	HuberDelta  float64 // threshold δ of the Huber loss, above which residuals are outliers; 0 for other losses
	// FrozenTensors names layers or tensors that local steps do not change.
	FrozenTensors []string
}

// ConvolutionLayers describes the filter layers of a model, which precede the hidden layers: see spec.Convolution.
type ConvolutionLayers struct {
	InputChannels, KernelSteps, PoolSteps uint32
	FiltersPerLayer                       []uint32
}

// ExternalTraining describes a model that is trained by a program of the device's owner. The zero value means that
// agents train it.
type ExternalTraining struct {
	TrainerName    string       // name of the program in the configuration of the device
	TrainedTensors TensorSchema // tensors that the program trains, in the order of the parameter vector
}

// IsEnabled reports whether an external program trains the model.
func (e *ExternalTraining) IsEnabled() bool { return e.TrainerName != "" }

// ModelKind returns the kind of the task's model.
func (t *Task) ModelKind() spec.ModelKind {
	if t.External.IsEnabled() {
		return spec.ModelExternal
	}
	return cmp.Or(t.Model.Kind, spec.ModelKindFromLayers(len(t.Model.HiddenUnits), t.Model.Risk))
}

// TrainingSettings holds the parameters of the local steps.
type TrainingSettings struct {
	ExchangeKind spec.ExchangeKind
	UpdateCodec  spec.Codec
	BatchSize    uint32 // number B_k of rows per local step; 0 means all rows, which gives the exact gradient
	// LocalStepProbability is the probability δ_k with which agent k performs a local step (second-order guarantees,
	// equation (9)). The values 0 and 1 both mean that the agent performs every step.
	LocalStepProbability float64
	GradientNoise        spec.GradientNoise
	// StepSize is the constant step size μ of the local steps. 0 means that local step t has the decreasing step size
	// 2/(StrongConvexity·(StepSizeDecayOffset + t)).
	StepSize            float64
	StrongConvexity     float64
	StepSizeDecayOffset float64
	Proximal            float64 // factor ρ_p of the proximal term of FedProx; 0 means that there is no proximal term
	// whether the step size of agent k is divided by its number E_k of local steps (ch5, equation (5.26))
	NormalizesStepSize bool
	// StepTimeBudgetMillis is the time, in milliseconds, that an agent may spend on local steps. The agent derives the
	// number of local steps from this time and its measured speed, within MinLocalSteps and MaxLocalSteps.
	StepTimeBudgetMillis uint32
	MinLocalSteps        uint32
	MaxLocalSteps        uint32
}

// MixingSettings describes how agents mix (average) their parameters with their neighbours between the local steps of a
// round (FedDec paper, Algorithm 1). The zero value means that agents do not mix.
type MixingSettings struct {
	// IntervalSteps is the number of local steps between two mixing steps; 0 means that agents do not mix. It must
	// divide MaxLocalSteps, the number H of local steps in a round.
	IntervalSteps uint32
	// SnapshotWaitMillis is the maximum time for which a step waits for the neighbours' snapshots; 0 means no limit.
	// SnapshotRetryMillis is the time after which a missing snapshot is requested. LateSnapshotMillis is the time after
	// the last step during which late snapshots are accepted.
	SnapshotWaitMillis, SnapshotRetryMillis, LateSnapshotMillis uint32
	// SnapshotCodec is the codec of snapshots. It is empty if agents do not mix.
	SnapshotCodec spec.Codec
	// IsUnsealed is true if messages between neighbours are sent unencrypted, as on a trusted test bench.
	IsUnsealed bool
	// HasEndlessBlocks is true if blocks have no last step. Agents then continue to mix across rounds, and each round
	// collects their current parameters.
	HasEndlessBlocks bool
}

// PersonalModelSettings defines the personal part of a model. The zero value means that no part is personal.
type PersonalModelSettings struct {
	// PersonalTensors names layers or tensors that each agent keeps. They are not part of schemas and are not sent.
	PersonalTensors []string
	// UsesDitto gives each agent a personal model in addition to the shared one, with the parameter DittoLambda (λ).
	UsesDitto   bool
	DittoLambda float64
}

// Standardization maps each column x to clip((x − Mean)/Scale, ±Clip). The features come first and the target last.
type Standardization struct {
	Mean, Scale []float64
	Clip        float64
}

// AppendEncoding appends the encoded task to dst.
func (t *Task) AppendEncoding(dst []byte) []byte {
	w := writer{dst}
	w.str(t.Name)
	w.u32(uint32(len(t.Features)))
	for _, f := range t.Features {
		w.str(f)
	}
	w.str(t.TargetColumn)
	w.u32(uint32(len(t.Model.HiddenUnits)))
	for _, h := range t.Model.HiddenUnits {
		w.u32(h)
	}
	w.u32(t.Model.Outputs)
	w.u8(activationCodes.codeOfValue(t.Model.Activation))
	w.u8(riskCodes.codeOfValue(t.Model.Risk))
	w.bool(t.Model.HasBias)
	w.f64(t.Model.Ridge)
	w.u8(exchangeCodes.codeOfValue(t.Training.ExchangeKind))
	w.u32(t.Training.BatchSize)
	w.f64(t.Training.LocalStepProbability)
	w.f64(t.Training.StepSize)
	w.f64(t.Training.StrongConvexity)
	w.f64(t.Training.StepSizeDecayOffset)
	w.bool(t.Training.NormalizesStepSize)
	w.u32(t.Training.StepTimeBudgetMillis)
	w.u32(t.Training.MinLocalSteps)
	w.u32(t.Training.MaxLocalSteps)
	w.u64(t.MinSamples)
	w.bodySections(t.sectionCodecs(), t.Extra)
	return w.encoded
}

// sectionCodecs returns the codecs of a task's sections. All sections except "finetune" affect the messages
// that an agent sends.
func (t *Task) sectionCodecs() []sectionCodec {
	return append(updateCodecSectionCodecs(&t.Training.UpdateCodec, IgnoreUnknownSection), []sectionCodec{
		{"codec", DeclineUnknownSection, func(w *writer) {
			if code := codecCodes.codeOfValue(t.Training.UpdateCodec); code > 1 {
				w.u8(code)
			}
		}, func(r *reader) { t.Training.UpdateCodec = codecCodes.readValue(r, "codec") }},
		{"conv1d", DeclineUnknownSection, func(w *writer) { w.convolutionLayers(&t.Model.Convolution) },
			func(r *reader) { r.convolutionLayers(&t.Model.Convolution) }},
		{"ditto", DeclineUnknownSection, func(w *writer) {
			if t.Personal.UsesDitto {
				w.f64(t.Personal.DittoLambda)
			}
		}, func(r *reader) { t.Personal.UsesDitto, t.Personal.DittoLambda = true, r.f64("lambda") }},
		{"external", DeclineUnknownSection, func(w *writer) { w.externalTraining(&t.External) },
			func(r *reader) { r.externalTraining(&t.External) }},
		// This section affects only local predictions.
		{"finetune", IgnoreUnknownSection, func(w *writer) {
			if t.FinetuneSteps > 0 {
				w.u32(t.FinetuneSteps)
			}
		}, func(r *reader) { t.FinetuneSteps = r.u32() }},
		{"frozen", DeclineUnknownSection, func(w *writer) { w.tensorNames(t.Model.FrozenTensors) },
			func(r *reader) { t.Model.FrozenTensors = r.tensorNames("frozen") }},
		{"gradient_noise", DeclineUnknownSection, func(w *writer) { w.gradientNoise(t) },
			func(r *reader) { r.gradientNoise(t) }},
		{"huber", DeclineUnknownSection, func(w *writer) { w.optionalFloat(t.Model.HuberDelta) },
			func(r *reader) { t.Model.HuberDelta = r.f64("delta") }},
		{"inputs", DeclineUnknownSection, func(w *writer) { w.rowRecipe(&t.Recipe) },
			func(r *reader) { r.rowRecipe(&t.Recipe) }},
		{"kind", DeclineUnknownSection, func(w *writer) {
			if t.Model.Kind != "" {
				w.str(string(t.Model.Kind))
			}
		}, func(r *reader) { t.Model.Kind = r.modelKind() }},
		{"mixing", DeclineUnknownSection, func(w *writer) { w.mixingSettings(t) },
			func(r *reader) { r.mixingSettings(t) }},
		{"personal", DeclineUnknownSection, func(w *writer) { w.tensorNames(t.Personal.PersonalTensors) },
			func(r *reader) { t.Personal.PersonalTensors = r.tensorNames("personal") }},
		{"proximal", DeclineUnknownSection, func(w *writer) { w.optionalFloat(t.Training.Proximal) },
			func(r *reader) { t.Training.Proximal = r.f64("proximal") }},
		{"sensors", DeclineUnknownSection, func(w *writer) { w.sensorLimits(&t.Recipe) },
			func(r *reader) { r.sensorLimits(&t.Recipe) }},
		{"standardization", DeclineUnknownSection, func(w *writer) { w.standardization(t) },
			func(r *reader) { r.standardization(t) }},
	}...)
}

// optionalFloat encodes a number. It writes no bytes for the number 0.
func (w *writer) optionalFloat(x float64) {
	if x != 0 {
		w.f64(x)
	}
}

// tensorNames encodes the names of tensors or layers. It writes no bytes for an empty list.
func (w *writer) tensorNames(names []string) {
	if len(names) == 0 {
		return
	}
	w.u32(uint32(len(names)))
	for _, name := range names {
		w.str(name)
	}
}

func (r *reader) tensorNames(field string) (names []string) {
	for range r.listLength(field, 3*(MaxHiddenLayers+1), 2) {
		names = append(names, r.str(field, MaxName))
	}
	return names
}

// modelKind decodes a kind of model that follows neither from the layers nor from the section "external". An unknown
// kind of a later version is accepted here, and is rejected when the task is checked.
func (r *reader) modelKind() spec.ModelKind {
	k := spec.ModelKind(r.str("kind", MaxSectionName))
	if k.FollowsFromLayers() || k == spec.ModelExternal {
		r.failf("section kind must not contain %q, which follows from the rest of the task", k)
	}
	return k
}

func (w *writer) convolutionLayers(c *ConvolutionLayers) {
	if c.InputChannels == 0 {
		return
	}
	w.u32(c.InputChannels)
	w.u32(c.KernelSteps)
	w.u32(c.PoolSteps)
	w.u32(uint32(len(c.FiltersPerLayer)))
	for _, n := range c.FiltersPerLayer {
		w.u32(n)
	}
}

func (r *reader) convolutionLayers(c *ConvolutionLayers) {
	*c = ConvolutionLayers{InputChannels: r.u32(), KernelSteps: r.u32(), PoolSteps: r.u32()}
	for range r.listLength("filter layers", MaxHiddenLayers, 4) {
		c.FiltersPerLayer = append(c.FiltersPerLayer, r.u32())
	}
}

func (w *writer) externalTraining(e *ExternalTraining) {
	if !e.IsEnabled() {
		return
	}
	w.str(e.TrainerName)
	w.u32(uint32(len(e.TrainedTensors)))
	for _, t := range e.TrainedTensors {
		w.tensorSpec(&t)
	}
}

// externalTraining decodes the tensors of an external model. Each tensor must have at least one element, and all
// tensors together must fit into a blob.
func (r *reader) externalTraining(e *ExternalTraining) {
	e.TrainerName = r.str("trainer", MaxName)
	total := uint64(0)
	for range r.listLength("tensors", MaxTensors, 4) {
		t := TensorSpec{Name: r.str("tensor", MaxName), DType: DType(r.enum("element type", uint8(Float64)))}
		n := uint64(1)
		for range min(int(r.u8()), MaxTensorRank+1) {
			d := r.u32()
			t.Shape = append(t.Shape, d)
			n = min(n*uint64(d), MaxBlobBytes+1)
		}
		if r.err != nil {
			return
		}
		if total += n; len(t.Shape) > MaxTensorRank || n == 0 || total > MaxBlobBytes/4 {
			r.failf("tensor %q has an invalid shape %v: at most %d axes per tensor and 1 to %d elements in total are "+
				"allowed", t.Name,
				t.Shape, MaxTensorRank, MaxBlobBytes/4)
			return
		}
		e.TrainedTensors = append(e.TrainedTensors, t)
	}
}

func (w *writer) gradientNoise(t *Task) {
	if n := t.Training.GradientNoise; noiseLawCodes.codeOfValue(n.Law) != 0 {
		w.u8(noiseLawCodes.codeOfValue(n.Law))
		w.f64(n.Variance)
	}
}

func (r *reader) gradientNoise(t *Task) {
	t.Training.GradientNoise = spec.GradientNoise{Law: noiseLawCodes.readValue(r, "noise"),
		Variance: r.f64("noise variance")}
}

func (w *writer) mixingSettings(t *Task) {
	m := &t.Mixing
	if *m == (MixingSettings{}) {
		return
	}
	w.u32(m.IntervalSteps)
	w.u32(m.SnapshotWaitMillis)
	w.u32(m.SnapshotRetryMillis)
	w.u32(m.LateSnapshotMillis)
	w.u8(codecCodes.codeOfValue(m.SnapshotCodec))
	w.bool(m.IsUnsealed)
	w.bool(m.HasEndlessBlocks)
}

func (r *reader) mixingSettings(t *Task) {
	t.Mixing = MixingSettings{
		IntervalSteps: r.u32(), SnapshotWaitMillis: r.u32(), SnapshotRetryMillis: r.u32(), LateSnapshotMillis: r.u32(),
		SnapshotCodec: codecCodes.readOptionalValue(r, "codec"), IsUnsealed: r.bool("open"),
		HasEndlessBlocks: r.bool("endless"),
	}
}

func (w *writer) standardization(t *Task) {
	st := &t.Standardization
	if len(st.Mean) == 0 && len(st.Scale) == 0 && st.Clip == 0 {
		return
	}
	w.f64s(st.Mean)
	w.f64s(st.Scale)
	w.f64(st.Clip)
}

func (r *reader) standardization(t *Task) {
	t.Standardization = Standardization{
		Mean:  r.f64s("mean", MaxFeatures+1),
		Scale: r.f64s("scale", MaxFeatures+1),
		Clip:  r.f64("clip"),
	}
}

// DecodeTask decodes a task blob. It checks the form and the limits. Package task checks whether the task is valid when
// it builds the model.
func DecodeTask(p []byte) (Task, error) {
	r := reader{unread: p}
	t := Task{Name: r.str("name", MaxName)}
	for range r.listLength("features", MaxFeatures, 2) {
		t.Features = append(t.Features, r.str("feature", MaxName))
	}
	t.TargetColumn = r.str("target", MaxName)
	for range r.listLength("hidden layers", MaxHiddenLayers, 4) {
		t.Model.HiddenUnits = append(t.Model.HiddenUnits, r.u32())
	}
	t.Model.Outputs = r.u32()
	t.Model.Activation = activationCodes.readValue(&r, "activation")
	t.Model.Risk = riskCodes.readValue(&r, "risk")
	t.Model.HasBias = r.bool("bias")
	t.Model.Ridge = r.f64("ridge")
	t.Training = TrainingSettings{
		ExchangeKind: exchangeCodes.readValue(&r, "exchange"),
		BatchSize:    r.u32(), LocalStepProbability: r.f64("response probability"),
		GradientNoise: spec.GradientNoise{Law: spec.NoiseNone}, UpdateCodec: spec.CodecRaw,
		StepSize: r.f64("step size"), StrongConvexity: r.f64("strong convexity"), StepSizeDecayOffset: r.f64("gamma"),
		NormalizesStepSize:   r.bool("normalize"),
		StepTimeBudgetMillis: r.u32(), MinLocalSteps: r.u32(), MaxLocalSteps: r.u32(),
	}
	t.MinSamples = r.u64()
	t.Extra = r.bodySections(t.sectionCodecs())
	return t, r.finish("task")
}
