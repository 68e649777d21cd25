package learner

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

// TestRobustMoments: two values of −9999 among 1,500 leave the scale of their column as it is without them, and values
// without outliers have the exact moments, to the bit.
func TestRobustMoments(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const rows = 1500
	x, y := make([]float32, 2*rows), make([]float32, rows)
	for i := range rows {
		x[2*i], x[2*i+1], y[i] = float32(0.5+0.26*rng.NormFloat64()), float32(i%2), float32(rng.ExpFloat64())
	}
	clean := NewSamples(2, x, y)
	if exact, robust := MomentsOf(clean).Vector(), RobustMoments(clean).Vector(); !slices.Equal(exact, robust) {
		t.Errorf("without outliers %v, want %v", robust, exact)
	}
	if found := FindOutliers(clean); len(found) > 0 {
		t.Errorf("outliers %+v where there are none", found)
	}
	dirty := slices.Clone(x)
	dirty[2*700], dirty[2*701] = -9999, -9999
	s := NewSamples(2, dirty, y)
	scale := func(m *Moments) float64 { return m.Standardization(spec.RiskSquared, 0).Scale[0] }
	want := scale(MomentsOf(clean))
	if exact, robust := scale(MomentsOf(s)), scale(RobustMoments(s)); exact < 300 || math.Abs(robust-want) > 0.01*want {
		t.Errorf("the scale is %v, exactly %v; want %v", robust, exact, want)
	}
	found := FindOutliers(s)
	if len(found) != 1 || found[0].Column != 0 || found[0].N != 2 || found[0].Worst != -9999 || found[0].Low < -1 ||
		found[0].High > 2 {
		t.Errorf("%+v", found)
	}
}

// TestRobustBounds: a column with mostly equal values has no bounds, and exponential values have no outliers.
func TestRobustBounds(t *testing.T) {
	for name, values := range map[string][]float64{"none": nil, "one": {3}, "constant": {2, 2, 2, 2},
		"rain": {0, 0, 0, 0, 0, 0, 40}, "two values": {0, 1, 0, 1, 1}} {
		if b := boundsOf(slices.Clone(values)); b.Outside(1e30) || b.Outside(-1e30) {
			t.Errorf("%s: %+v", name, b)
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	tails := make([]float64, 4000)
	for i := range tails {
		tails[i] = rng.ExpFloat64()
	}
	if b := boundsOf(slices.Clone(tails)); slices.ContainsFunc(tails, b.Outside) {
		t.Errorf("%+v of exponential values", b)
	}
	values := []float64{1, 2, 3, 4, 5} // median 3, MAD 1
	if b := boundsOf(values); math.Abs(b.Low-(3-20*1.4826)) > 1e-12 || math.Abs(b.High-(3+20*1.4826)) > 1e-12 {
		t.Errorf("%+v", b)
	}
}
