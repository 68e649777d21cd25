package learner

import (
	"math"
	"testing"
)

// TestTanhOfTheSeries compares with math.Tanh all float32 of the last octave of the series, where its error is largest.
func TestTanhOfTheSeries(t *testing.T) {
	const octave = 1 << 23
	v, first := make([]float32, octave), math.Float32bits(1./16)
	for i := range v {
		v[i] = math.Float32frombits(first + uint32(i))
	}
	tanh(v)
	for i, got := range v {
		x := math.Float32frombits(first + uint32(i))
		if want := float32(math.Tanh(float64(x))); got != want {
			t.Fatalf("tanh(%v) is %v, want %v", x, got, want)
		}
	}
}

// TestTanh compares every 1,021st float32 with math.Tanh; and once, with a stride of 1, all that are positive.
func TestTanh(t *testing.T) {
	v, in := []float32{float32(math.Copysign(0, -1))}, make([]float32, 1<<12)
	if tanh(v); !math.Signbit(float64(v[0])) {
		t.Error("tanh(−0) is 0")
	}
	v = make([]float32, len(in))
	for first := uint64(0); first < 1<<32; {
		for i := range in {
			in[i] = math.Float32frombits(uint32(first))
			first += 1021
		}
		copy(v, in)
		tanh(v)
		for i, x := range in {
			want := float32(math.Tanh(float64(x)))
			if math.Float32bits(v[i]) != math.Float32bits(want) && want == want {
				t.Fatalf("tanh(%v) is %v, want %v", x, v[i], want)
			}
			if want != want && v[i] == v[i] {
				t.Fatalf("tanh(%v) is %v", x, v[i])
			}
		}
	}
}
