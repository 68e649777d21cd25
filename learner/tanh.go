package learner

import "math"

// tanh replaces each element v_i of v by the hyperbolic tangent tanh(v_i).
func tanh[T Float](v []T) {
	if v, ok := any(v).([]float32); ok {
		tanh32(v)
		return
	}
	for i, x := range v {
		v[i] = T(math.Tanh(float64(x)))
	}
}

// tanh32 replaces each element x of v by float32(math.Tanh(float64(x))). For small values it uses assembly if
// available; the result is bitwise identical.
func tanh32(v []float32) { tanhPureGo(v[tanhPrefixInAssembly(v):]) }

// Coefficients of the series of the hyperbolic tangent: s + s³·tanh3 + s⁵·tanh5 + …
const (
	tanh3  = -1. / 3
	tanh5  = 2. / 15
	tanh7  = -17. / 315
	tanh9  = 62. / 2835
	tanh11 = -1382. / 155925
	tanh13 = 21844. / 6081075
)

// tanhPureGo implements tanh32 in Go. It uses a series for small values, which are common in wide layers with small
// initial weights, since the series is faster than math.Tanh. The error of the series is too small to change the
// rounding to float32.
func tanhPureGo(v []float32) {
	for i, x := range v {
		// Use the series only for non-zero values, since the series would turn −0 into 0.
		if !usesTanhSeries(x) || x == 0 {
			v[i] = float32(math.Tanh(float64(x)))
			continue
		}
		s := float64(x)
		z := s * s
		p := float64(z*tanh13) + tanh11
		p = float64(z*p) + tanh9
		p = float64(z*p) + tanh7
		p = float64(z*p) + tanh5
		p = float64(z*p) + tanh3
		v[i] = float32(s + float64(s*float64(z*p)))
	}
}

// usesTanhSeries reports whether the absolute value of x is so small that tanh(x) is computed by the series.
func usesTanhSeries(x float32) bool { return x > -1./8 && x < 1./8 }
