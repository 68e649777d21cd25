package settings

import (
	"fmt"
	"math"
	"time"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// taskKeys are the keys of a task, each with its value in the announced task.
var taskKeys = []struct {
	key string
	of  func(t *wire.Task) any
}{
	{"task.name", func(t *wire.Task) any { return t.Name }},
	{"task.features", func(t *wire.Task) any { return t.Features }},
	{"task.target", func(t *wire.Task) any { return t.Target }},
	{"task.grid.step", func(t *wire.Task) any { return t.Recipe.Grid.Step }},
	{"task.grid.lateness", func(t *wire.Task) any { return t.Recipe.Grid.Lateness }},
	{"task.grid.zone", func(t *wire.Task) any { return t.Recipe.Grid.Zone }},
	{"task.inputs", func(t *wire.Task) any { return t.Recipe.Inputs }},
	{"task.model.kind", func(t *wire.Task) any { return spec.KindOf(len(t.Model.Hidden), t.Model.Risk) }},
	{"task.model.classes", func(t *wire.Task) any { return classesOf(&t.Model) }},
	{"task.model.hidden", func(t *wire.Task) any { return t.Model.Hidden }},
	{"task.model.activation", func(t *wire.Task) any { return t.Model.Activation }},
	{"task.model.risk", func(t *wire.Task) any { return t.Model.Risk }},
	{"task.model.bias", func(t *wire.Task) any { return t.Model.Bias }},
	{"task.model.ridge", func(t *wire.Task) any { return t.Model.Ridge }},
	{"task.model.huber_delta", func(t *wire.Task) any { return t.Model.HuberDelta }},
	{"task.model.frozen", func(t *wire.Task) any { return t.Model.Frozen }},
	{"task.proximal", func(t *wire.Task) any { return t.Training.Proximal }},
	{"task.exchange", func(t *wire.Task) any { return t.Training.Exchange }},
	{"task.codec", func(t *wire.Task) any { return t.Training.Codec }},
	{"task.batch_size", func(t *wire.Task) any { return t.Training.BatchSize }},
	{"task.response.probability", func(t *wire.Task) any { return t.Training.ResponseProb }},
	{"task.gradient_noise.law", func(t *wire.Task) any { return t.Training.GradientNoise.Law }},
	{"task.gradient_noise.variance", func(t *wire.Task) any { return t.Training.GradientNoise.Variance }},
	{"task.step_size.normalize", func(t *wire.Task) any { return t.Training.Normalize }},
	{"task.step_size.diminishing", func(t *wire.Task) any { return t.Training.StrongConvexity > 0 }},
	{"task.step_size.constant", func(t *wire.Task) any { return t.Training.StepSize }},
	{"task.step_size.strong_convexity", func(t *wire.Task) any { return t.Training.StrongConvexity }},
	{"task.step_size.smoothness", func(t *wire.Task) any { return smoothnessOf(&t.Training) }},
	{"task.steps.budget", func(t *wire.Task) any { return milliseconds(t.Training.Budget) }},
	{"task.steps.min", func(t *wire.Task) any { return t.Training.MinSteps }},
	{"task.steps.max", func(t *wire.Task) any { return t.Training.MaxSteps }},
	{"round.algorithm", func(t *wire.Task) any {
		return map[bool]string{false: "fedavg",
			true: "feddec"}[t.Mixing.Every > 0]
	}},
	{"task.min_rows", func(t *wire.Task) any { return t.MinSamples }},
}

// mixingKeys are the further keys of a task whose agents mix.
var mixingKeys = []struct {
	key string
	of  func(m *wire.Mixing) any
}{
	{"task.mixing.every", func(m *wire.Mixing) any { return m.Every }},
	{"task.mixing.server_every", func(m *wire.Mixing) any { return map[bool]int{false: -1, true: 0}[m.Endless] }},
	{"task.mixing.wait", func(m *wire.Mixing) any { return milliseconds(m.Wait) }},
	{"task.mixing.repeat", func(m *wire.Mixing) any { return milliseconds(m.Repeat) }},
	{"task.mixing.drain", func(m *wire.Mixing) any { return milliseconds(m.Drain) }},
	{"task.mixing.codec", func(m *wire.Mixing) any { return m.Codec }},
	{"task.mixing.sealed", func(m *wire.Mixing) any { return !m.Open }},
}

// OtherKeys returns the keys in which a run's task differs from the configured one, as "task.batch_size is 4,
// configured is 5".
func OtherKeys(run, configured wire.Task) []string {
	var all []string
	add := func(key string, before, now any) {
		if a, b := fmt.Sprint(before), fmt.Sprint(now); a != b {
			all = append(all, fmt.Sprintf("%s is %s, configured is %s", key, a, b))
		}
	}
	for _, k := range taskKeys {
		add(k.key, k.of(&run), k.of(&configured))
	}
	if run.Mixing.Every > 0 && configured.Mixing.Every > 0 {
		for _, k := range mixingKeys {
			add(k.key, k.of(&run.Mixing), k.of(&configured.Mixing))
		}
	}
	return all
}

// classesOf inverts Task.Wire, as do the functions below.
func classesOf(m *wire.Model) uint32 {
	if m.Risk == spec.RiskSoftmax {
		return m.Outputs
	}
	return m.Outputs - 1 // 0, as the key has it
}

func milliseconds(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }

// smoothnessOf returns L_s of γ = max{8 L_s/μ_sc − 1, H}, or its upper bound if H is larger.
func smoothnessOf(t *wire.Training) string {
	if t.StrongConvexity == 0 {
		return "0"
	}
	l := (t.Gamma + 1) * t.StrongConvexity / 8
	if t.Gamma <= float64(t.MaxSteps) {
		return fmt.Sprintf("at most %v", round6(l))
	}
	return fmt.Sprint(round6(l))
}

// round6 rounds to six digits, which removes the rounding errors of the inversion.
func round6(x float64) float64 {
	scale := math.Pow(10, 6-math.Ceil(math.Log10(x)))
	return math.Round(x*scale) / scale
}
