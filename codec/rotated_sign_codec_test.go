package codec

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// TestSignsAgainstDense compares the encoded bytes and the decoded elements with an implementation that uses dense
// matrices.
func TestSignsAgainstDense(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 1; n < 70; n++ {
		v, d := make([]float32, n), paddedLength(n)
		for i := range v {
			v[i] = float32(rng.NormFloat64())
		}
		seed := rng.Uint64()
		source := func() *rand.Rand { return rand.New(rand.NewPCG(seed, 3)) }
		r, draws, at := make([][]float64, d), rand.NewPCG(source().Uint64(), 0), uint64(0)
		for i := range r {
			r[i] = make([]float64, d)
		}
		for j := range n {
			if j%64 == 0 {
				at = draws.Uint64()
			}
			for i := range r {
				odd := 0
				for x := i & j; x > 0; x &= x - 1 {
					odd ^= 1
				}
				r[i][j] = (1 - 2*float64(odd)) * (1 - 2*float64(at>>(j%64)&1)) / math.Sqrt(float64(d))
			}
		}
		squares, sum, sign := 0.0, 0.0, make([]float64, d)
		for i := range r {
			y := 0.0
			for j, x := range v {
				y += r[i][j] * float64(x)
			}
			sum += math.Abs(y)
			sign[i] = math.Copysign(1, y)
		}
		for _, x := range v {
			squares += float64(x) * float64(x)
		}
		p := rotatedSignCodec[float32]{}.Append(nil, v, source())
		if s := float64(math.Float32frombits(binary.LittleEndian.Uint32(p))); math.Abs(s-squares/sum) > 1e-6*s {
			t.Errorf("%d elements: scale %v, want %v", n, s, squares/sum)
		}
		got := make([]float32, n)
		if err := (rotatedSignCodec[float32]{}).Decode(got, p); err != nil {
			t.Fatal(err)
		}
		for j := range got {
			want := 0.0
			for i := range r {
				want += r[i][j] * sign[i] * squares / sum
			}
			if math.Abs(float64(got[j])-want) > 1e-6*(1+math.Abs(want)) {
				t.Errorf("%d elements: element %d is %v, want %v", n, j, got[j], want)
			}
		}
	}
}

// TestSignsGolden compares the encoded bytes and the decoded elements with recorded values, which must be the same on
// every CPU.
func TestSignsGolden(t *testing.T) {
	for _, tt := range []struct {
		v    []float32
		p    string
		want []float32
	}{
		{[]float32{1, -2, 3, 0.5, 0.25}, "9b4bc73f10f5ee5686a5f5c444", []float32{2.2019231, -2.2019231, 2.2019231,
			2.2019231, 0}},
		{[]float32{1, -2, 3, 0.5, 0.25, 7e-3, -0.1, 1e6, -3e5}, "800e854810f5ee5686a5f5c49696",
			[]float32{0, 0, 0, 0, 0, 0, 0, 1.09e6, 0}},
		{[]float32{-3}, "0000404010f5ee5686a5f5c401", []float32{-3}},
	} {
		p := rotatedSignCodec[float32]{}.Append(nil, tt.v, rand.New(rand.NewPCG(1, 2)))
		got := make([]float32, len(tt.v))
		if err := (rotatedSignCodec[float32]{}).Decode(got, p); err != nil {
			t.Fatal(err)
		}
		if hex.EncodeToString(p) != tt.p {
			t.Errorf("%v is packed as %x, want %s", tt.v, p, tt.p)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("decoded %v, want %v", got, tt.want)
		}
	}
	if size := (rotatedSignCodec[float32]{}).EncodedSize(258); float64(size) > 0.08*4*258 {
		t.Errorf("258 elements have %d bytes", size)
	}
}

func TestSignsRefuse(t *testing.T) {
	for _, s := range []float32{-1, float32(math.NaN()), float32(math.Inf(1)), math.MaxFloat32} {
		// One element of the vector is 2√2·s, where s is the scale.
		p := append(binary.LittleEndian.AppendUint32(nil, math.Float32bits(s)), make([]byte, 9)...)
		if err := (rotatedSignCodec[float32]{}).Decode(make([]float32, 8), p); !errors.Is(err, wire.ErrNotFinite) {
			t.Errorf("the scale %v: %v", s, err)
		}
	}
	for _, v := range [][]float32{{math.MaxFloat32, math.MaxFloat32, -math.MaxFloat32}, make([]float32, 9)} {
		got := make([]float32, len(v))
		err := rotatedSignCodec[float32]{}.Decode(got, rotatedSignCodec[float32]{}.Append(nil, v,
			rand.New(rand.NewPCG(4, 2))))
		if err != nil || v[0] == 0 && !slices.Equal(got, v) {
			t.Errorf("%v became %v, %v", v, got, err)
		}
	}
}
