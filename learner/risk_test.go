package learner

import (
	"math"
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
		risk := sampleRisk(spec.RiskLogistic, delta, []float64{test.z}, test.y)
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
		risk := sampleRisk(spec.RiskSoftmax, delta, test.z, test.y)
		compare(t, "risk", []float64{risk}, []float64{test.risk}, 1e-15)
		compare(t, "delta", delta, test.delta, 1e-15)
	}
	if risk := sampleRisk(spec.RiskSoftmax, nil, []float64{math.NaN(), 1}, 1); !math.IsNaN(risk) {
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
			sampleRisk(spec.RiskSoftmax, nil, []float64{0, 0}, y)
		}()
	}
}
