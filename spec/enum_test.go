package spec_test

import (
	"encoding"
	"fmt"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

// words describes one option type by its parsing, its validation and its valid names.
type words struct {
	name string
	read func(text string) (string, error)
	bad  error // error that Validate returns for an unknown name
	none error // error that Validate returns for the zero value
	want string
	all  []string
}

func of[W interface {
	~string
	Validate() error
}, P interface {
	*W
	encoding.TextUnmarshaler
}](want string, all ...string) words {
	return words{
		name: fmt.Sprintf("%T", W("")),
		read: func(text string) (string, error) {
			var w W
			err := P(&w).UnmarshalText([]byte(text))
			if err == nil {
				err = w.Validate()
			}
			return string(w), err
		},
		bad: W("Raw").Validate(), none: W("").Validate(), want: want, all: all,
	}
}

// TestWords checks the names of all option values. These names must not change, since configuration files and metric
// labels contain them.
func TestWords(t *testing.T) {
	for _, w := range []words{
		of[spec.LossKind]("squared, logistic, softmax, huber or full_squared", "squared", "logistic", "softmax",
			"huber",
			"full_squared"),
		of[spec.Activation]("tanh, relu or identity", "tanh", "relu", "identity"),
		of[spec.ModelKind]("linear, logistic, softmax, mlp, autoencoder, conv1d or external", "linear", "logistic",
			"softmax", "mlp", "autoencoder", "conv1d", "external"),
		of[spec.ExchangeKind]("parameters or gradient", "parameters", "gradient"),
		of[spec.NoiseLaw]("none, gaussian or laplace", "none", "gaussian", "laplace"),
		of[spec.Codec]("raw, bfloat16, int8, int4, signs or top_k:0.05", "raw", "bfloat16", "int8", "int4", "signs",
			"top_k:0.05"),
		of[spec.Algorithm]("fedavg or feddec", "fedavg", "feddec"),
		of[spec.ParticipantSampling]("without_replacement, with_replacement or importance", "without_replacement",
			"with_replacement", "importance"),
		of[spec.AgentWeightRule]("equal or samples", "equal", "samples"),
		of[spec.EdgeSource]("radius, file, ring, complete or discovered", "radius", "file", "ring", "complete",
			"discovered"),
		of[spec.EdgeWeightRule]("metropolis, best-constant, max-degree or fastest", "metropolis", "best-constant",
			"max-degree", "fastest"),
		of[spec.WeightPlacement]("step or mean", "step", "mean"),
	} {
		t.Run(w.name, func(t *testing.T) {
			for _, word := range w.all {
				if got, err := w.read(word); err != nil || got != word {
					t.Errorf("%q is read as %q, %v", word, got, err)
				}
			}
			if got, err := w.read("Raw"); err == nil || got != "" || err.Error() != "want "+w.want+`, got "Raw"` {
				t.Errorf("an unknown word is read as %q, %v", got, err)
			}
			if w.bad == nil || w.bad.Error() != "want "+w.want+`, got "Raw"` {
				t.Errorf("Validate of an unknown word: %v", w.bad)
			}
			if w.none == nil || w.none.Error() != "want "+w.want+`, got ""` {
				t.Errorf("Validate of the zero value: %v", w.none)
			}
		})
	}
}

// TestRegression checks the results of IsRegression and StandardizesTarget for every loss.
func TestRegression(t *testing.T) {
	tests := map[spec.LossKind]struct{ isRegression, standardizesTarget bool }{
		spec.LossSquared: {true, true}, spec.LossFullSquared: {true, true}, spec.LossHuber: {true, true},
		spec.LossLogistic: {false, false}, spec.LossSoftmax: {false, false},
	}
	for _, loss := range spec.LossKinds() {
		want, known := tests[loss]
		if !known {
			t.Errorf("loss %s is missing in this test", loss)
		}
		if got := loss.IsRegression(); got != want.isRegression {
			t.Errorf("%s.IsRegression() = %v", loss, got)
		}
		if got := loss.StandardizesTarget(); got != want.standardizesTarget {
			t.Errorf("%s.StandardizesTarget() = %v", loss, got)
		}
	}
}
