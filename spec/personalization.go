package spec

import "math"

// PersonalMethod is the method by which an agent obtains a personal model.
type PersonalMethod string

// Methods of personalisation.
const (
	// PersonalLayers keeps some tensors personal and trains them together with the shared ones (Arivazhagan et al.
	// 2019).
	PersonalLayers PersonalMethod = "layers"
	// PersonalDitto trains v_k ← v_k − μ(g_k(v_k) + λ(v_k − w_{i−1})) in addition to the shared model (Li et al. 2021).
	PersonalDitto PersonalMethod = "ditto"
)

var personalMethods = []PersonalMethod{PersonalLayers, PersonalDitto}

// UnmarshalText parses a personalisation method.
func (m *PersonalMethod) UnmarshalText(text []byte) error { return parseEnum(m, text, personalMethods) }

// Validate returns an error if the personalisation method is unknown.
func (m PersonalMethod) Validate() error { return checkEnum(m, personalMethods) }

// PersonalOptions is the key personal of a task and of an experiment: the part of the model that is personal. With the
// method layers and no layers, no part is personal.
type PersonalOptions struct {
	Method      PersonalMethod `yaml:"method" json:"method"`
	Layers      []string       `yaml:"layers" json:"layers"` // names of tensors or layers, or "last"
	DittoLambda float64        `yaml:"lambda" json:"lambda"`
}

// DefaultPersonalOptions returns options without a personal part.
func DefaultPersonalOptions() PersonalOptions {
	return PersonalOptions{Method: PersonalLayers, DittoLambda: 0.1}
}

// UsesDitto reports whether each agent has a whole personal model in addition to the shared one.
func (p *PersonalOptions) UsesDitto() bool { return p.Method == PersonalDitto }

// IsEnabled reports whether agents have personal parameters.
func (p *PersonalOptions) IsEnabled() bool { return p.UsesDitto() || len(p.Layers) > 0 }

// MethodOrNone returns the method, or none without a personal part, as the value of [OptionPersonal].
func (p *PersonalOptions) MethodOrNone() string {
	if !p.IsEnabled() {
		return "none"
	}
	return string(p.Method)
}

// CheckPersonalOptions validates the options and reports errors under the section's key. It does not check that the
// layers exist.
func CheckPersonalOptions(c *ProblemList, key string, p *PersonalOptions) {
	c.AddError(key+".method", p.Method.Validate())
	c.Require(!p.UsesDitto() || len(p.Layers) == 0, key+".layers",
		"is %v, but the method ditto personalizes the whole model: remove one of them", p.Layers)
	c.Require(p.DittoLambda >= 0 && !math.IsInf(p.DittoLambda, 1), key+".lambda",
		"is %v; want a finite number of at least 0",
		p.DittoLambda)
}

// FinetuneOptions is the key finetune of a task and of an experiment: local steps that an agent takes from a finished
// model to obtain a personal model.
type FinetuneOptions struct {
	Steps int `yaml:"steps" json:"steps"` // number of steps; 0 means no fine-tuning
}

// MaxFinetuneSteps bounds the number of fine-tuning steps.
const MaxFinetuneSteps = 1_000_000

// CheckFinetuneOptions validates the options and reports errors under the section's key.
func CheckFinetuneOptions(c *ProblemList, key string, f *FinetuneOptions) {
	c.Require(f.Steps >= 0 && f.Steps <= MaxFinetuneSteps, key+".steps", "is %d; want 0 (none) to %d", f.Steps,
		MaxFinetuneSteps)
}
