package learner

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

func TestLayout(t *testing.T) {
	a := Architecture{Inputs: 5, HiddenUnits: []int{4, 3}, Outputs: 2, Risk: spec.LossSoftmax, HasBias: true}
	got := fmt.Sprint(a.Layout())
	want := "[{layer0.weight [4 5]} {layer0.bias [4]} {layer1.weight [3 4]} {layer1.bias [3]} {layer2.weight [2 3]} " +
		"{layer2.bias [2]}]"
	if got != want {
		t.Errorf("Layout:\n got %s\nwant %s", got, want)
	}
}

func TestValidateArchitecture(t *testing.T) {
	good := Architecture{Inputs: 3, HiddenUnits: []int{4}, Outputs: 1, Activation: spec.ActivationTanh,
		Risk: spec.LossSquared}
	for _, test := range []struct {
		change func(*Architecture)
		want   string // expected error; empty means that the input is valid
	}{
		{func(*Architecture) {}, ""},
		{func(a *Architecture) { a.Inputs = 65536; a.HiddenUnits = []int{4095} }, ""},
		{func(a *Architecture) { a.Inputs = 0 }, "architecture: inputs is 0, but must be between 1 and 65536"},
		{func(a *Architecture) { a.Inputs = 65537 }, "architecture: inputs is 65537, but must be between 1 and 65536"},
		{func(a *Architecture) { a.HiddenUnits = []int{4, -1} },
			"architecture: hidden[1] is -1, but must be between 1 and 65536"},
		{func(a *Architecture) { a.HiddenUnits = []int{1, 1, 1, 1, 1, 1, 1, 1, 1} },
			"architecture: hidden has 9 layers, but at most 8 are allowed"},
		{func(a *Architecture) { a.Outputs = 2 }, "architecture: outputs is 2, but the squared risk requires 1"},
		{func(a *Architecture) { a.Risk = spec.LossSoftmax },
			"architecture: outputs is 1, but the softmax risk requires one output per class and at least 2"},
		{func(a *Architecture) { a.Risk = "cubic" },
			"architecture: risk: want " + spec.JoinWithOr(spec.LossKinds()) + `, got "cubic"`},
		{func(a *Architecture) { a.Activation = "step" },
			`architecture: activation: want tanh, relu or identity, got "step"`},
		{func(a *Architecture) { a.Kind = spec.ModelMLP }, ""},
		{func(a *Architecture) { a.Kind = "forest" },
			"architecture: kind: want " + spec.JoinWithOr(append(spec.ModelKinds(), spec.ModelExternal)) +
				`, got "forest"`},
		{func(a *Architecture) { a.Kind = spec.ModelLinear },
			"architecture: kind is linear, but 1 hidden layers with the risk squared require the kind mlp"},
		{func(a *Architecture) { a.Ridge = -1 }, "architecture: ridge is -1, but must be finite and not negative"},
		{func(a *Architecture) { a.Ridge = math.NaN() },
			"architecture: ridge is NaN, but must be finite and not negative"},
		{func(a *Architecture) { a.Inputs = 65536; a.HiddenUnits = []int{65536} },
			"architecture: 4295032832 parameters exceed the limit of 268435456"},
		{func(a *Architecture) { a.Inputs = 0; a.Ridge = -1 },
			"architecture: inputs is 0, but must be between 1 and 65536\narchitecture: ridge is -1, but must be " +
				"finite and not " +
				"negative"},
	} {
		a := good
		test.change(&a)
		got := ""
		if err := a.Validate(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%+v:\n got %q\nwant %q", a, got, test.want)
		}
		if _, err := NewModel[float32](a); (err == nil) != (test.want == "") {
			t.Errorf("%+v: NewModel returned %v", a, err)
		}
	}
}

func TestNames(t *testing.T) {
	got := strings.Join([]string{StepCountByBudget.String(), StepCountByMinimum.String(), StepCountByMaximum.String(),
		StepTimeUnmeasured.String(),
		StepCountReason(9).String()}, " ")
	want := "budget minimum maximum unmeasured StepCountReason(9)"
	if got != want {
		t.Errorf("names %q, want %q", got, want)
	}
}
