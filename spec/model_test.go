package spec_test

import (
	"math"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

func TestModel(t *testing.T) {
	for want, change := range map[string]func(*spec.Model){
		"": func(*spec.Model) {},
		"\n": func(m *spec.Model) {
			m.Kind, m.HiddenUnits, m.Risk, m.Classes, m.Ridge = spec.ModelMLP, []int{3}, spec.LossSoftmax, 2, 0.1
		},
		"m.kind: " + spec.ModelKind("cubic").Validate().Error(): func(m *spec.Model) { m.Kind = "cubic" },
		"m.risk: " + spec.LossKind("").Validate().Error():       func(m *spec.Model) { m.Risk = "" },
		`m.activation: want tanh, relu or identity, got "step"`: func(m *spec.Model) { m.Activation = "step" },
		"m.hidden: this key is set to [3], but hidden layers are required for mlp and autoencoder, optional for " +
			"conv1d and invalid " +
			"for all other kinds": func(m *spec.Model) {
			m.HiddenUnits = []int{3}
		},
		"m.hidden: this key is set to [], but hidden layers are required for mlp and autoencoder, optional for " +
			"conv1d and invalid " +
			"for all other kinds": func(m *spec.Model) {
			m.Kind = spec.ModelMLP
		},
		"m.hidden[1]: invalid value 0: must be between 1 and 65536": func(m *spec.Model) {
			m.Kind, m.HiddenUnits = spec.ModelMLP, []int{3, 0}
		},
		"m.classes: invalid value 1: must be between 2 and 65536 with the risk softmax": func(m *spec.Model) {
			m.Kind, m.Classes = spec.ModelSoftmax, 1
		},
		"m.classes: invalid value 65537: must be between 2 and 65536 with the risk softmax": func(m *spec.Model) {
			m.Kind, m.Classes = spec.ModelSoftmax, 65537
		},
		"m.classes: this key is set to 2, but only the risk softmax uses this key: remove it": func(m *spec.Model) {
			m.Kind, m.Classes = spec.ModelLogistic, 2
		},
		"m.huber_delta: this key is set to 1, but the key is required for the risk huber and invalid for all " +
			"others": func(m *spec.Model) { m.HuberDelta = 1 },
		"m.huber_delta: this key is set to 0, but the key is required for the risk huber and invalid for all " +
			"others": func(m *spec.Model) {
			m.Risk = spec.LossHuber
		},
		"m.huber_delta: invalid value -1: must be a positive number": func(m *spec.Model) {
			m.Risk, m.HuberDelta = spec.LossHuber, -1
		},
		`m.frozen[1]: invalid value "layer1": must be layer0, layer0.weight or layer0.bias`: func(m *spec.Model) {
			m.FrozenTensors = []string{"layer0", "layer1"}
		},
		"m.ridge: invalid value -1: must be finite and not negative": func(m *spec.Model) {
			m.Ridge = -1
		},
		"m.ridge: invalid value NaN: must be finite and not negative": func(m *spec.Model) {
			m.Ridge = math.NaN()
		},
	} {
		m := spec.Model{Kind: spec.ModelLinear, Activation: spec.ActivationTanh, Risk: spec.LossSquared, HasBias: true}
		change(&m)
		var c spec.ProblemList
		m.Check(&c, "m")
		wantProblem(t, m, c.Err(), want)
	}
}

func TestLoss(t *testing.T) {
	if m := (spec.Model{Kind: spec.ModelLinear, Risk: spec.LossHuber}); m.EffectiveLossKind() != spec.LossHuber {
		t.Errorf("a linear model with the risk huber has the risk %s", m.EffectiveLossKind())
	}
	tests := map[spec.ModelKind]spec.LossKind{
		spec.ModelLinear: spec.LossSquared, spec.ModelLogistic: spec.LossLogistic, spec.ModelSoftmax: spec.LossSoftmax,
		spec.ModelMLP: spec.LossFullSquared, spec.ModelAutoencoder: spec.LossSquared,
		spec.ModelConv1D: spec.LossFullSquared,
	}
	for _, kind := range spec.ModelKinds() {
		want, known := tests[kind]
		if !known {
			t.Errorf("kind %s is missing in this test", kind)
		}
		if m := (spec.Model{Kind: kind,
			Risk: spec.LossFullSquared}); m.EffectiveLossKind() != want || m.OutputCount() != 1 {
			t.Errorf("%s: risk %s with %d outputs, want %s with 1", kind, m.EffectiveLossKind(), m.OutputCount(), want)
		}
	}
}
