package learner

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

// TestRobustMoments checks that two values of −9999 among 1,500 values do not change the scale of their column. The
// moments of columns without outliers must be bitwise exact.
func TestRobustMoments(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const rows = 1500
	x, y := make([]float32, 2*rows), make([]float32, rows)
	for i := range rows {
		x[2*i], x[2*i+1], y[i] = float32(0.5+0.26*rng.NormFloat64()), float32(i%2), float32(rng.ExpFloat64())
	}
	clean := NewSamples(2, x, y)
	if exact, robust := ComputeColumnMoments(clean).Vector(), RobustColumnMoments(clean).Vector(); !slices.Equal(exact,
		robust) {
		t.Errorf("without outliers %v, want %v", robust, exact)
	}
	if found := FindOutliers(clean); len(found) > 0 {
		t.Errorf("outliers %+v where there are none", found)
	}
	dirty := slices.Clone(x)
	dirty[2*700], dirty[2*701] = -9999, -9999
	s := NewSamples(2, dirty, y)
	scale := func(m *ColumnMoments) float64 { return m.Standardization(spec.LossSquared, 0).Scale[0] }
	want := scale(ComputeColumnMoments(clean))
	if exact, robust := scale(ComputeColumnMoments(s)),
		scale(RobustColumnMoments(s)); exact < 300 || math.Abs(robust-want) > 0.01*want {
		t.Errorf("the scale is %v, exactly %v; want %v", robust, exact, want)
	}
	found := FindOutliers(s)
	if len(found) != 1 || found[0].ColumnIndex != 0 || found[0].OutlierCount != 2 || found[0].WorstOutlier != -9999 ||
		found[0].LowestInlier < -1 ||
		found[0].HighestInlier > 2 {
		t.Errorf("%+v", found)
	}
}

// TestRobustBoundsMostlyEqual checks columns in which most values are equal, so that the median absolute deviation is
// 0. Values such as −9999 must be outliers, and valid rare events must not. The moments of a column without outliers
// must be bitwise exact.
func TestRobustBoundsMostlyEqual(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const rows = 1500
	sparse := func(base, share float64, value func() float64) []float64 {
		column := make([]float64, rows)
		for i := range column {
			if column[i] = base; rng.Float64() < share {
				column[i] += value()
			}
		}
		return column
	}
	always := func(v ...float64) func() float64 { return func() float64 { return v[rng.IntN(len(v))] } }
	round := func(step float64, value func() float64) func() float64 {
		return func() float64 { return step * math.Ceil(value()/step) }
	}
	logNormal := func() float64 { return 0.5 * math.Exp(1.2*rng.NormFloat64()) }
	rain := sparse(0, 0.2, rng.ExpFloat64)
	state := sparse(0, 0.45, always(1))
	sun := sparse(0, 0.45, func() float64 { return 900 * math.Abs(math.Sin(math.Pi*rng.Float64())) })
	for _, tt := range []struct {
		name   string
		column []float64
		more   []float64 // valid values that replace some values of the column
		wrong  []float64 // outliers that replace some values of the column
	}{
		{"rain", rain, nil, []float64{-9999, -9999}},
		{"rain", rain, []float64{60}, []float64{-999}},
		{"rain", rain, nil, []float64{999}},
		{"rain in steps of 0.2 mm", sparse(0, 0.1, round(0.2, logNormal)), []float64{60}, []float64{-9999}},
		{"rain of a heavy-tailed distribution", sparse(0, 0.4, logNormal), []float64{60}, []float64{-9999, 9999}},
		{"rain, and many sentinels", rain, nil, slices.Repeat([]float64{-9999}, 150)},
		{"a dry column", sparse(0, 0, nil), []float64{60}, nil},
		{"a dry column with drizzle", sparse(0, 0.05, always(0.1, 0.2)), []float64{60}, []float64{-9999}},
		{"a state", state, nil, []float64{65535, 65535}},
		{"a state", state, nil, []float64{999}},
		{"a rare state", sparse(0, 0.01, always(1)), nil, []float64{65535, 65535}},
		{"a very rare state", sparse(0, 0, nil), []float64{1}, []float64{65535, 65535}},
		{"an alarm", sparse(0, 0, nil), []float64{1}, nil},
		{"counts", sparse(0, 0.1, always(1, 2, 3)), []float64{200}, []float64{-9999}},
		{"codes", sparse(1, 0.4, always(1, 2, 4, 8, 16)), nil, []float64{65535}},
		{"solar radiation", sun, nil, []float64{-9999}},
		{"a setpoint", sparse(20, 0.2, always(-2, -4, 1.5)), []float64{35}, []float64{-9999}},
		{"an appliance that is rarely on", sparse(0, 0.3, func() float64 {
			if rng.Float64() < 0.1 {
				return 2000 + 10*rng.NormFloat64()
			}
			return 1.2
		}), nil, []float64{65535}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := slices.IndexFunc(tt.column, func(v float64) bool { return v == tt.column[0] })
			y := make([]float32, rows)
			samples := func(values []float64) *Samples[float32] {
				x := make([]float32, rows)
				for i, v := range tt.column {
					x[i] = float32(v)
				}
				for i, v := range values {
					x[at+i] = float32(v)
				}
				return NewSamples(1, x, y)
			}
			clean := samples(tt.more)
			exact := ComputeColumnMoments(clean).Vector()
			if robust := RobustColumnMoments(clean).Vector(); !slices.Equal(exact, robust) {
				t.Errorf("without outliers %v, want %v; %+v", robust, exact, FindOutliers(clean))
			}
			found := FindOutliers(samples(append(slices.Clone(tt.more), tt.wrong...)))
			switch {
			case len(tt.wrong) == 0:
				if len(found) > 0 {
					t.Errorf("outliers %+v where there are none", found)
				}
			case len(found) != 1 || found[0].OutlierCount != len(tt.wrong) || !slices.Contains(tt.wrong,
				found[0].WorstOutlier):
				t.Errorf("outliers %+v, want %v", found, tt.wrong)
			}
		})
	}
}

// TestRobustBounds checks the outlier bounds of columns with few values, and that exponentially distributed values have
// no outliers.
func TestRobustBounds(t *testing.T) {
	for name, values := range map[string][]float64{"none": nil, "one": {3}, "constant": {2, 2, 2, 2}} {
		if b := outlierBoundsOf(slices.Clone(values)); b.IsOutlier(1e30) || b.IsOutlier(-1e30) {
			t.Errorf("%s: %+v", name, b)
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	tails := make([]float64, 4000)
	for i := range tails {
		tails[i] = rng.ExpFloat64()
	}
	if b := outlierBoundsOf(slices.Clone(tails)); slices.ContainsFunc(tails, b.IsOutlier) {
		t.Errorf("%+v of exponential values", b)
	}
	for name, tt := range map[string]struct {
		values []float64
		low    float64
		high   float64
	}{
		"one event":                            {withZeros(40), -750 * 40, 750 * 40},
		"two values":                           {[]float64{0, 0, 0, -1, -1}, -750, 750},
		"750 steps are inside":                 {withZeros(1, 750), -3750, 22500},
		"751 steps are outside":                {withZeros(1, 751), -750, 750},
		"30 times the largest is inside":       {withZeros(1, 100, 3000), -15000, 90000},
		"more than that is outside":            {withZeros(1, 100, 3001), -750, 3000},
		"5 times on the other side is inside":  {withZeros(-1, -200, 1000), -30000, 30000},
		"more than that is outside, too":       {withZeros(-1, -200, 1001), -6000, 1000},
		"of three distances two stay":          {withZeros(1, -1e5, 1e9), -3e6, 3e6},
		"of eleven distances all but one stay": {withZeros(1, 2, 3, 4, 5, 6, 7, 8, 9, 1e5, -1e7), -5e5, 3e6},
		"of twelve distances two are left out": {withZeros(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1e5, 1e7), -750, 750},
		"each value counts once":               {withZeros(1, 2, 3, -1e5, -1e5, -1e5), -750, 750},
		"around another median":                {[]float64{20, 20, 20, 20, 18, -9999}, 20 - 1500, 20 + 1500},
	} {
		median := slices.Sorted(slices.Values(tt.values))[len(tt.values)/2]
		values := append(slices.Repeat([]float64{median}, 100), tt.values...)
		if b := outlierBoundsOf(values); b.Low != tt.low || b.High != tt.high {
			t.Errorf("%s: %+v, want %v and %v", name, b, tt.low, tt.high)
		}
	}
	values := []float64{1, 2, 3, 4, 5} // values with the median 3 and the median absolute deviation 1
	if b := outlierBoundsOf(values); math.Abs(b.Low-(3-20*1.4826)) > 1e-12 || math.Abs(b.High-(3+20*1.4826)) > 1e-12 {
		t.Errorf("%+v", b)
	}
}

// withZeros returns the given values followed by zeros, which are more than half of all values.
func withZeros(values ...float64) []float64 { return append(values, make([]float64, len(values)+1)...) }

// TestRobustBoundsOfTwoModes checks columns with the power of an appliance that has a noisy standby. The power while
// the appliance is on must not be an outlier. A few readings of −9999 or of a short glitch must be outliers.
func TestRobustBoundsOfTwoModes(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for name, tt := range map[string]struct {
		on       int // number of values of about 2,000 W among 1,500 values
		watts    func() float32
		outliers int
	}{
		"on for a third of the time":       {500, func() float32 { return 2000 + 50*rng.Float32() }, 0},
		"two powers, each always the same": {500, func() float32 { return []float32{1, 1500}[rng.IntN(2)] }, 0},
		"always the same power":            {300, func() float32 { return 2000 }, 0},
		"on for a hundredth":               {15, func() float32 { return 2000 + 50*rng.Float32() }, 0},
		"a sentinel":                       {30, func() float32 { return -9999 }, 30},
		"a glitch of three values":         {3, func() float32 { return 5e6 * rng.Float32() }, 3},
		"a sentinel in a tenth or so":      {149, func() float32 { return 65535 }, 149},
		"a sentinel in a third":            {500, func() float32 { return -9999 }, 500},
		"two sentinels in a third":         {500, func() float32 { return []float32{-9999, 32767}[rng.IntN(2)] }, 500},
	} {
		x, y := make([]float32, 1500), make([]float32, 1500)
		for i := range x {
			if x[i] = rng.Float32() / 2; i%(1500/tt.on) == 0 && i/(1500/tt.on) < tt.on {
				x[i] = tt.watts()
			}
		}
		s := NewSamples(1, x, y)
		n := 0
		for _, o := range FindOutliers(s) {
			n += o.OutlierCount
		}
		if n != tt.outliers {
			t.Errorf("%s: %d outliers, want %d", name, n, tt.outliers)
		}
		if exact, robust := ComputeColumnMoments(s).Vector(), RobustColumnMoments(s).Vector(); slices.Equal(exact,
			robust) != (n == 0) {
			t.Errorf("%s: moments %v, exactly %v", name, robust, exact)
		}
	}
}
