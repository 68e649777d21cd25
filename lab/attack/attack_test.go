package attack_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/lab/attack"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/spec"
)

func parse(t *testing.T, text string) attack.Attack {
	t.Helper()
	a, err := attack.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAlone(t *testing.T) {
	for text, want := range map[string][]float32{
		"signflip": {-10, 20}, "signflip:1": {-1, 2}, "constant:1e30": {1e30, 1e30}, "constant": {1, 1},
		"labelflip": {1, -2},
	} {
		v := []float32{1, -2}
		attack.CorruptUpdate(parse(t, text), v, nil)
		if !slices.Equal(v, want) {
			t.Errorf("%s: %v, want %v", text, v, want)
		}
	}
}

func TestNoise(t *testing.T) {
	v := make([]float64, 10_000)
	attack.CorruptUpdate(parse(t, "noise:3"), v, rand.New(rand.NewPCG(1, 2)))
	sum, squares := 0.0, 0.0
	for _, x := range v {
		sum, squares = sum+x, squares+x*x
	}
	if mean, deviation := sum/1e4, math.Sqrt(squares/1e4); math.Abs(mean) > 0.1 || math.Abs(deviation-3) > 0.1 {
		t.Errorf("mean %v, deviation %v", mean, deviation)
	}
}

// TestTogether checks the collusions against three honest updates with mean (2, 0) and deviation (√(2/3), √6).
func TestTogether(t *testing.T) {
	honest := [][]float64{{1, -3}, {2, 0}, {3, 3}}
	for text, want := range map[string][]float64{
		"alie":      {2 - 1.5*math.Sqrt(2./3), -1.5 * math.Sqrt(6)},
		"alie:-1":   {2 + math.Sqrt(2./3), math.Sqrt(6)},
		"inner":     {-1, 0},
		"inner:0.1": {-0.2, 0},
	} {
		a, got := parse(t, text), make([]float64, 2)
		attack.Collude(a, got, honest)
		if !a.IsCollusion() || math.Abs(got[0]-want[0]) > 1e-15 || math.Abs(got[1]-want[1]) > 1e-15 {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
		if attack.Collude(a, got, nil); got[0] != 0 || got[1] != 0 {
			t.Errorf("%s: %v where nobody is honest", text, got)
		}
	}
}

func TestFlip(t *testing.T) {
	for _, tt := range []struct {
		model learner.Architecture
		want  []float64
	}{
		{learner.Architecture{Kind: spec.ModelSoftmax, Inputs: 1, Outputs: 3, Risk: spec.LossSoftmax},
			[]float64{2, 1, 0}},
		{learner.Architecture{Kind: spec.ModelLinear, Inputs: 1, Outputs: 1, Risk: spec.LossSquared},
			[]float64{0, -1, -2}},
	} {
		s := learner.NewSamples(1, []float64{5, 6, 7}, []float64{0, 1, 2})
		flipped := attack.Flip(tt.model, s).All()
		if !slices.Equal(flipped.Y, tt.want) || !slices.Equal(flipped.X, []float64{5, 6, 7}) || s.All().Y[2] != 2 {
			t.Errorf("%s: %v, %v; the truth is %v", tt.model.Kind, flipped.X, flipped.Y, s.All().Y)
		}
	}
}

// TestFlipEveryLoss checks for each loss that the false targets are valid, and that some differ from the true targets.
func TestFlipEveryLoss(t *testing.T) {
	for _, loss := range spec.LossKinds() {
		model := learner.Architecture{Inputs: 1, Outputs: 1, Risk: loss, HuberDelta: 1}
		if loss == spec.LossSoftmax {
			model.Outputs = 3
		}
		set, flips := model.LabelSet(), 0
		for _, y := range []float64{-2, -1, 0, 0.25, 0.5, 1, 2, 40} {
			if !set.Contains(y) {
				continue
			}
			flipped := attack.FlipLabel(model, y)
			if !set.Contains(flipped) {
				t.Errorf("%s: target %v becomes %v, which is not one of %v", loss, y, flipped, set)
			}
			if flipped != y {
				flips++
			}
		}
		if flips == 0 {
			t.Errorf("%s: no target is changed", loss)
		}
	}
}

func TestParse(t *testing.T) {
	for _, name := range attack.Names() {
		parse(t, name)
	}
	for text, want := range map[string]string{
		"truth":         "unknown attack, want one of alie:1.5, constant:1, inner:0.5, labelflip, noise:1, signflip:10",
		"signflip:x":    "attack signflip:x: invalid number, want one of alie:1.5",
		"constant:1e99": "attack constant:1e99", "noise:NaN": "attack noise:NaN", "labelflip:2": "attack labelflip:2",
	} {
		if _, err := attack.Parse(text); !strings.HasPrefix(fmt.Sprint(err), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}
