package learner

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

// TestTanhOfTheSeries compares the series with math.Tanh for all float32 values of the last octave for which the series
// is used, where its error is largest. It also checks that the error would be too large for some values of the next
// octave.
func TestTanhOfTheSeries(t *testing.T) {
	const octave = 1 << 23
	v := make([]float32, 0, octave+octave/8)
	for i, first := uint32(0), math.Float32bits(1./16); i < 2*octave; i++ {
		if i < octave || i%8 == 0 {
			v = append(v, math.Float32frombits(first+i))
		}
	}
	againstMath(t, v)
}

// TestTanh compares the results for every 1,021st float32 value with math.Tanh. All positive values have been tested
// once with a stride of 1.
func TestTanh(t *testing.T) {
	v := make([]float32, 0, 1<<32/1021+1)
	for i := uint64(0); i < 1<<32; i += 1021 {
		v = append(v, math.Float32frombits(uint32(i)))
	}
	againstMath(t, v)
}

// againstMath checks tanh and its version in Go against math.Tanh.
func againstMath(t *testing.T, in []float32) {
	t.Helper()
	for in := range slices.Chunk(in, 1<<12) {
		v, pure := slices.Clone(in), slices.Clone(in)
		tanh(v)
		tanhPureGo(pure)
		sameFloats(t, v, pure)
		for i, x := range in {
			want := float32(math.Tanh(float64(x)))
			if math.Float32bits(v[i]) != math.Float32bits(want) && (want == want || v[i] == v[i]) {
				t.Fatalf("tanh(%v) is %v, want %v", x, v[i], want)
			}
		}
	}
}

// TestTanhOfBlocks places each special value at each position of a vector of small values, for all lengths around the
// block size and all memory alignments. The result must be bitwise identical to the result of the Go version, and
// memory outside the vector must not change.
func TestTanhOfBlocks(t *testing.T) {
	const guard = 7
	apart := []float32{0, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32,
		math.Float32frombits(0x007FFFFF), 1. / 8, -1. / 8, math.Nextafter32(1./8, 0), math.Nextafter32(-1./8, 0), 3, -3,
		math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}
	for n := range 26 { // Test lengths of up to three blocks of 8 elements.
		for shift := range 4 {
			for at := range max(n, 1) {
				for _, x := range apart {
					all := make([]float32, shift+n+2)
					for i := range all {
						all[i] = guard
					}
					v := all[shift+1:][:n]
					for i := range v {
						v[i] = float32(i+1) / 256 * float32(1-i%2*2)
					}
					if n > 0 {
						v[at] = x
					}
					want := slices.Clone(all)
					tanhPureGo(want[shift+1:][:n])
					tanh32(v)
					sameFloats(t, all, want)
				}
			}
		}
	}
}

// FuzzTanh compares tanh32 with its version in Go.
func FuzzTanh(f *testing.F) {
	f.Add([]byte{}, uint8(0))
	f.Add(make([]byte, 4*20), uint8(1)) // a vector of zeros
	small := make([]byte, 0, 4*40)
	for k := range 40 {
		small = binary.LittleEndian.AppendUint32(small, math.Float32bits(float32(k-17)/150))
	}
	f.Add(small, uint8(3))
	f.Fuzz(func(t *testing.T, p []byte, shift uint8) {
		all := make([]float32, int(shift%8)+len(p)/4)
		v := all[shift%8:]
		for i := range v {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(p[4*i:]))
		}
		want := slices.Clone(all)
		tanhPureGo(want[shift%8:])
		tanh32(v)
		sameFloats(t, all, want)
	})
}

func sameFloats(t *testing.T, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("element %d of %d is %v (%08x), want %v (%08x)", i, len(want), got[i], math.Float32bits(got[i]),
				want[i], math.Float32bits(want[i]))
		}
	}
}

// BenchmarkTanh measures the time for small values, in assembly (if available) and in Go.
func BenchmarkTanh(b *testing.B) {
	in := randomVector[float32](4096, 0.03, newRNG(1))
	v := make([]float32, len(in))
	for name, tanh := range map[string]func([]float32){"fast": tanh32, "pure": tanhPureGo} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				copy(v, in)
				tanh(v)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(v)), "ns/element")
		})
	}
}
