package spec

import "math"

// PersonalMethod is the method by which an agent obtains a personal model.
type PersonalMethod string

// Methods of personalisation.
const (
	// PersonalLayers keeps some tensors on each agent and trains them together with the shared tensors (Arivazhagan et
	// al. 2019).
	PersonalLayers PersonalMethod = "layers"
	// PersonalDitto trains a personal model v_k of agent k in addition to the shared model w. Each step is v_k ← v_k −
	// μ(g_k(v_k) + λ(v_k − w_{i−1})), where g_k is the gradient and w_{i−1} is the base model of round i (Li et al.
	// 2021).
	PersonalDitto PersonalMethod = "ditto"
)

var personalMethods = []PersonalMethod{PersonalLayers, PersonalDitto}

// UnmarshalText parses a personalisation method.
func (m *PersonalMethod) UnmarshalText(text []byte) error { return parseEnum(m, text, personalMethods) }

// Validate returns an error if the personalisation method is unknown.
func (m PersonalMethod) Validate() error { return checkEnum(m, personalMethods) }

// PersonalOptions contains the settings under the key "personal" in a task or an experiment. The method "layers" with
// an empty list of layers disables personal models.
type PersonalOptions struct {
	Method PersonalMethod `yaml:"method" json:"method"`
	// names of personal tensors or layers; "last" is the last layer
	Layers      []string `yaml:"layers" json:"layers"`
	DittoLambda float64  `yaml:"lambda" json:"lambda"`
}

// DefaultPersonalOptions returns options that disable personal models.
func DefaultPersonalOptions() PersonalOptions {
	return PersonalOptions{Method: PersonalLayers, DittoLambda: 0.1}
}

// UsesDitto reports whether each agent trains a complete personal model in addition to the shared model.
func (p *PersonalOptions) UsesDitto() bool { return p.Method == PersonalDitto }

// IsEnabled reports whether agents have personal parameters.
func (p *PersonalOptions) IsEnabled() bool { return p.UsesDitto() || len(p.Layers) > 0 }

// MethodOrNone returns the value of [OptionPersonal], which is the method or "none" if personal models are disabled.
func (p *PersonalOptions) MethodOrNone() string {
	if !p.IsEnabled() {
		return "none"
	}
	return string(p.Method)
}

// CheckPersonalOptions validates the options and reports errors under key. It does not check whether the layers exist.
func CheckPersonalOptions(c *ProblemList, key string, p *PersonalOptions) {
	c.AddError(key+".method", p.Method.Validate())
	c.Require(!p.UsesDitto() || len(p.Layers) == 0, key+".layers",
		"this key is set to %v, but the method ditto personalizes the whole model: remove this key or the method",
		p.Layers)
	c.Require(p.DittoLambda >= 0 && !math.IsInf(p.DittoLambda, 1), key+".lambda",
		"invalid value %v: must be finite and not negative",
		p.DittoLambda)
}

// FinetuneOptions contains the settings under the key "finetune" in a task or an experiment. In fine-tuning an agent
// adapts a trained model to its own data by local steps.
type FinetuneOptions struct {
	Steps int `yaml:"steps" json:"steps"` // number of local steps; 0 disables fine-tuning
}

// MaxFinetuneSteps is the maximum number of fine-tuning steps.
const MaxFinetuneSteps = 1_000_000

// CheckFinetuneOptions validates the options and reports errors under key.
func CheckFinetuneOptions(c *ProblemList, key string, f *FinetuneOptions) {
	c.Require(f.Steps >= 0 && f.Steps <= MaxFinetuneSteps, key+".steps", "invalid value %d: must be between 0 (none) "+
		"and %d", f.Steps,
		MaxFinetuneSteps)
}
