package learner

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

func TestLogisticIsStable(t *testing.T) {
	for _, test := range []struct{ z, y, risk, delta float64 }{
		{0, 1, math.Ln2, -0.5},
		{0, -1, math.Ln2, 0.5},
		{1000, 1, 0, 0},
		{1000, -1, 1000, 1},
		{-1e30, 1, 1e30, -1},
		{-1e30, -1, 0, 0},
		{40, 1, math.Exp(-40), -math.Exp(-40)},
	} {
		delta := make([]float64, 1)
		risk := logisticLoss[float64]{}.Risk(delta, []float64{test.z}, test.y)
		compare(t, "risk", []float64{risk}, []float64{test.risk}, 1e-16)
		compare(t, "delta", delta, []float64{test.delta}, 1e-16)
		if test.z == 40 && (risk == 0 || delta[0] == 0) {
			t.Errorf("margin 40: risk %v and delta %v vanish", risk, delta[0])
		}
	}
}

func TestSoftmaxIsStable(t *testing.T) {
	for _, test := range []struct {
		z     []float64
		y     float64
		risk  float64
		delta []float64
	}{
		{[]float64{0, 0}, 1, math.Ln2, []float64{0.5, -0.5}},
		{[]float64{1e4, 0, -1e4}, 0, 0, []float64{0, 0, 0}},
		{[]float64{1e4, 0, -1e4}, 2, 2e4, []float64{1, 0, -1}},
		{[]float64{-1e30, -1e30}, 0, math.Ln2, []float64{-0.5, 0.5}},
	} {
		delta := make([]float64, len(test.z))
		risk := softmaxLoss[float64]{}.Risk(delta, test.z, test.y)
		compare(t, "risk", []float64{risk}, []float64{test.risk}, 1e-15)
		compare(t, "delta", delta, test.delta, 1e-15)
	}
	if risk := (softmaxLoss[float64]{}).Risk(nil, []float64{math.NaN(), 1}, 1); !math.IsNaN(risk) {
		t.Errorf("the risk of a NaN output is %v", risk)
	}
}

func TestSoftmaxRefusesUnmappedLabels(t *testing.T) {
	for _, y := range []float64{-1, 2, math.NaN()} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("label %v of 2 classes: no panic", y)
				}
			}()
			softmaxLoss[float64]{}.Risk(nil, []float64{0, 0}, y)
		}()
	}
}

// lossCases contains an architecture and labels for testing each loss. The test fails if a loss has no entry.
var lossCases = map[spec.LossKind]struct {
	a      Architecture
	labels []float64
}{
	spec.LossSquared:     {Architecture{Outputs: 1}, []float64{0, -3, 1e3}},
	spec.LossFullSquared: {Architecture{Outputs: 1}, []float64{0, -3, 1e3}},
	spec.LossHuber:       {Architecture{Outputs: 1, HuberDelta: 0.75}, []float64{0, -3, 1e3}},
	spec.LossLogistic:    {Architecture{Outputs: 1}, []float64{-1, 1}},
	spec.LossSoftmax:     {Architecture{Outputs: 3}, []float64{0, 1, 2}},
}

// eachLoss calls try once for each loss.
func eachLoss(t *testing.T, try func(t *testing.T, l Loss[float64], outputs int, labels []float64)) {
	for risk, make := range lossConstructorByKind[float64]() {
		c, known := lossCases[risk]
		if !known {
			t.Errorf("risk %s: add it to lossCases", risk)
			continue
		}
		if err := risk.Validate(); err != nil {
			t.Error(err)
		}
		c.a.Risk, c.a.Inputs = risk, 1
		if err := c.a.Validate(); err != nil {
			t.Error(err)
		}
		t.Run(string(risk), func(t *testing.T) { try(t, make(c.a), c.a.Outputs, c.labels) })
	}
}

// TestLossDerivatives compares the derivatives of each loss with central differences. A risk must not be negative, and
// must not depend on whether derivatives are requested.
func TestLossDerivatives(t *testing.T) {
	const h = 1e-6
	eachLoss(t, func(t *testing.T, l Loss[float64], outputs int, labels []float64) {
		rng := rand.New(rand.NewPCG(1, 2))
		for range 200 {
			z, delta := make([]float64, outputs), make([]float64, outputs)
			for c := range z {
				z[c] = 3 * rng.NormFloat64()
			}
			y := labels[rng.IntN(len(labels))]
			risk := l.Risk(delta, z, y)
			if risk < 0 || l.Risk(nil, z, y) != risk {
				t.Fatalf("outputs %v, target %v: risk %v, then %v", z, y, risk, l.Risk(nil, z, y))
			}
			for c := range z {
				up, down := append([]float64(nil), z...), append([]float64(nil), z...)
				up[c] += h
				down[c] -= h
				got := (l.Risk(nil, up, y) - l.Risk(nil, down, y)) / (2 * h)
				if math.Abs(got-delta[c]) > 1e-6*(1+math.Abs(got)) {
					t.Errorf("outputs %v, target %v: derivative %d is %v, differences say %v", z, y, c, delta[c], got)
				}
			}
		}
	})
}

// TestLossInfimum checks that the smallest possible risk is 0 for each target, so that ratios of risks are meaningful.
func TestLossInfimum(t *testing.T) {
	eachLoss(t, func(t *testing.T, l Loss[float64], outputs int, labels []float64) {
		for _, y := range labels {
			z, delta, step := make([]float64, outputs), make([]float64, outputs), 1.0
			risk := l.Risk(delta, z, y)
			for range 200 {
				next := slices.Clone(z)
				for c := range next {
					next[c] -= step * delta[c]
				}
				if l.Risk(nil, next, y) < risk {
					z, step = next, 2*step
					risk = l.Risk(delta, z, y)
				} else {
					step /= 2
				}
			}
			if !(risk >= 0 && risk < 1e-3) {
				t.Errorf("target %v: the lowest risk is %v, at the outputs %v", y, risk, z)
			}
		}
	})
}

// TestLossUnits checks that the risk is in the square of the target's unit if the target is standardised.
func TestLossUnits(t *testing.T) {
	for risk, make := range lossConstructorByKind[float64]() {
		if !risk.StandardizesTarget() {
			continue
		}
		small := make(Architecture{Outputs: 1, HuberDelta: 0.75})
		large := make(Architecture{Outputs: 1, HuberDelta: 7.5})
		for _, z := range []float64{-2, 0.3, 0.9, 4} {
			compare(t, string(risk), []float64{large.Risk(nil, []float64{10 * z}, 6)},
				[]float64{100 * small.Risk(nil, []float64{z}, 0.6)}, 1e-9)
		}
	}
}

// TestLossOfNaN checks that a NaN output makes the risk NaN, so that divergence is detected.
func TestLossOfNaN(t *testing.T) {
	eachLoss(t, func(t *testing.T, l Loss[float64], outputs int, labels []float64) {
		z := make([]float64, outputs)
		z[outputs-1] = math.NaN()
		if risk := l.Risk(make([]float64, outputs), z, labels[0]); !math.IsNaN(risk) {
			t.Errorf("risk %v", risk)
		}
	})
}

// TestLossLabels checks that labels that already have the form of the loss do not change, and that the prediction for a
// confident output is the label of that output.
func TestLossLabels(t *testing.T) {
	eachLoss(t, func(t *testing.T, l Loss[float64], outputs int, labels []float64) {
		y := append([]float64(nil), labels...)
		if err := l.MapLabels(y, outputs, new(LabelHistory)); err != nil || !slices.Equal(y, labels) {
			t.Errorf("labels %v become %v, error %v", labels, y, err)
		}
		for _, label := range labels {
			z := []float64{label}
			if outputs > 1 {
				z = make([]float64, outputs)
				z[int(label)] = 5
			}
			if got := l.Predict(z); got != label {
				t.Errorf("outputs %v speak for %v, want %v", z, got, label)
			}
		}
	})
}

// TestHuberByHand checks the Huber loss in both of its ranges: the parabola for residuals up to δ, and the line for
// larger residuals.
func TestHuberByHand(t *testing.T) {
	l := huberLoss[float64]{delta: 2}
	for _, tt := range []struct{ z, y, risk, slope float64 }{
		{1, 0, 0.5, 1}, {-1, 0, 0.5, -1}, {2, 0, 2, 2}, {5, 0, 8, 2}, {0, 5, 8, -2}, {3, 3, 0, 0},
	} {
		delta := make([]float64, 1)
		if risk := l.Risk(delta, []float64{tt.z}, tt.y); risk != tt.risk || delta[0] != tt.slope {
			t.Errorf("output %v, target %v: risk %v, slope %v; want %v, %v", tt.z, tt.y, risk, delta[0], tt.risk,
				tt.slope)
		}
	}
}
