package spec_test

import (
	"math"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

func TestStepSize(t *testing.T) {
	for want, s := range map[string]spec.StepSize{
		"":   {Constant: 0.1, NormalizesStepSize: true},
		"\n": {Constant: 0.1, IsDiminishing: true, StrongConvexity: 1, Smoothness: 4, DecayOffset: 9},
		"s.constant: invalid value 0: must be a positive number":    {},
		"s.constant: invalid value NaN: must be a positive number":  {Constant: math.NaN()},
		"s.constant: invalid value +Inf: must be a positive number": {Constant: math.Inf(1)},
		"s.strong_convexity: invalid value -1: must be a positive number, or 0": {IsDiminishing: true,
			StrongConvexity: -1},
		"s.smoothness: invalid value NaN: must be a positive number, or 0": {IsDiminishing: true,
			Smoothness: math.NaN()},
		"s.gamma: invalid value +Inf: must be a positive number, or 0": {IsDiminishing: true,
			DecayOffset: math.Inf(1)},
		"s.gamma: this key is set to 3, but s.diminishing is not set: set diminishing to true or remove this " +
			"key": {Constant: 1, DecayOffset: 3},
	} {
		var c spec.ProblemList
		s.Check(&c, "s")
		wantProblem(t, s, c.Err(), want)
	}
}

func TestGradientNoise(t *testing.T) {
	for want, n := range map[string]spec.GradientNoise{
		"":   {Law: spec.NoiseNone},
		"\n": {Law: spec.NoiseLaplace, Variance: 0.1},
		`n.law: want none, gaussian or laplace, got "white"`: {Law: "white", Variance: 1},
		`n.law: want none, gaussian or laplace, got ""`:      {},
		"n.variance: this key is set to 1, but no noise law is set: set n.law to gaussian or " +
			"laplace": {Law: spec.NoiseNone,
			Variance: 1},
		"n.variance: invalid value 0: must be a positive number with the law gaussian": {Law: spec.NoiseGaussian},
		"n.variance: invalid value -1: must be a positive number with the law laplace": {Law: spec.NoiseLaplace,
			Variance: -1},
		"n.variance: invalid value +Inf: must be a positive number with the law gaussian": {Law: spec.NoiseGaussian,
			Variance: math.Inf(1)},
	} {
		var c spec.ProblemList
		n.Check(&c, "n")
		wantProblem(t, n, c.Err(), want)
	}
}

func TestCheckProbability(t *testing.T) {
	for p, want := range map[float64]string{
		0.5: "", 1: "", 0: "p: invalid value 0: must be more than 0 and at most 1", 1.5: "p: invalid value 1.5: must " +
			"be more than 0 and at most 1",
		math.NaN(): "p: invalid value NaN: must be more than 0 and at most 1",
	} {
		var c spec.ProblemList
		spec.CheckLocalStepProbability(&c, "p", p)
		wantProblem(t, p, c.Err(), want)
	}
}

// wantProblem checks that err contains exactly the one error want, or that err is nil if want is empty.
func wantProblem(t *testing.T, of any, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if want == "\n" {
		want = ""
	}
	if got != want {
		t.Errorf("%+v: %q, want %q", of, got, want)
	}
}
