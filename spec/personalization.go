package spec

import "math"

// PersonalMethod says how an agent comes to a model of its own.
type PersonalMethod string

// The methods.
const (
	// PersonalLayers: some tensors are the agent's own, and are trained with the others (Arivazhagan et al. 2019).
	PersonalLayers PersonalMethod = "layers"
	// PersonalDitto: v_k ← v_k − μ(g_k(v_k) + λ(v_k − w_{i−1})), beside the round's own steps (Li et al. 2021).
	PersonalDitto PersonalMethod = "ditto"
)

var personalMethods = []PersonalMethod{PersonalLayers, PersonalDitto}

// UnmarshalText reads a method.
func (m *PersonalMethod) UnmarshalText(text []byte) error { return parseEnum(m, text, personalMethods) }

// Validate reports a word that is no method.
func (m PersonalMethod) Validate() error { return checkEnum(m, personalMethods) }

// PersonalOptions is the key personal of a task and of an experiment: what of a model is an agent's own. With the
// method layers and no layers nothing is.
type PersonalOptions struct {
	Method      PersonalMethod `yaml:"method" json:"method"`
	Layers      []string       `yaml:"layers" json:"layers"` // names of tensors or layers, or "last"
	DittoLambda float64        `yaml:"lambda" json:"lambda"` // λ of ditto
}

// DefaultPersonalOptions makes nothing an agent's own.
func DefaultPersonalOptions() PersonalOptions {
	return PersonalOptions{Method: PersonalLayers, DittoLambda: 0.1}
}

// UsesDitto reports whether each agent has a whole model of its own beside the shared one.
func (p *PersonalOptions) UsesDitto() bool { return p.Method == PersonalDitto }

// IsEnabled reports whether agents have anything of their own.
func (p *PersonalOptions) IsEnabled() bool { return p.UsesDitto() || len(p.Layers) > 0 }

// MethodOrNone is the word of [OptionPersonal].
func (p *PersonalOptions) MethodOrNone() string {
	if !p.IsEnabled() {
		return "none"
	}
	return string(p.Method)
}

// CheckPersonalOptions finds what cannot be; key is that of the section. Whether there are such layers the model knows.
func CheckPersonalOptions(c *ProblemList, key string, p *PersonalOptions) {
	c.AddError(key+".method", p.Method.Validate())
	c.Require(!p.UsesDitto() || len(p.Layers) == 0, key+".layers",
		"is %v with the method ditto, whose whole model is the agent's own: remove one of them", p.Layers)
	c.Require(p.DittoLambda >= 0 && !math.IsInf(p.DittoLambda, 1), key+".lambda",
		"is %v; want a finite number of 0 or more",
		p.DittoLambda)
}

// FinetuneOptions is the key finetune of a task and of an experiment: local steps that an agent takes from a finished
// model, which make it the agent's own.
type FinetuneOptions struct {
	Steps int `yaml:"steps" json:"steps"` // 0 = none
}

// MaxFinetuneSteps bounds the steps of fine-tuning.
const MaxFinetuneSteps = 1_000_000

// CheckFinetuneOptions finds what cannot be; key is that of the section.
func CheckFinetuneOptions(c *ProblemList, key string, f *FinetuneOptions) {
	c.Require(f.Steps >= 0 && f.Steps <= MaxFinetuneSteps, key+".steps", "is %d; want 0 (none) to %d", f.Steps,
		MaxFinetuneSteps)
}
