package codec_test

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// bounds contains, for each codec, the maximum error of an element x, given the elements of its unit. For codecs that
// decode only whole vectors, the unit is the whole vector.
var bounds = map[spec.Codec]func(x float64, unit []float64) float64{
	spec.CodecRaw:        func(float64, []float64) float64 { return 0 },
	spec.CodecBFloat16:   func(x float64, _ []float64) float64 { return math.Abs(x) / 256 },
	spec.CodecInt8:       func(_ float64, unit []float64) float64 { return largest(unit) / 127 * (1 + 1e-6) },
	spec.CodecInt4:       func(_ float64, unit []float64) float64 { return largest(unit) / 7 * (1 + 1e-6) },
	spec.CodecSigns:      func(_ float64, unit []float64) float64 { return 1.5 * norm(unit) },
	spec.TopKCodec(0.05): func(_ float64, unit []float64) float64 { return largest(unit) },
}

func largest(v []float64) (most float64) {
	for _, x := range v {
		most = max(most, math.Abs(x))
	}
	return most
}

func norm(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x * x
	}
	return math.Sqrt(sum)
}

// eachCodec calls try once for each codec that a configuration may name.
func eachCodec(t *testing.T, try func(t *testing.T, word spec.Codec)) {
	for _, word := range spec.Codecs() {
		if bounds[word] == nil || codec.ForName[float32](word) == nil || codec.ForName[float64](word) == nil {
			t.Errorf("codec %s: add it to the table, and to bounds", word)
			continue
		}
		t.Run(string(word), func(t *testing.T) { try(t, word) })
	}
}

func normal[T wire.Float](rng *rand.Rand, n int) []T {
	v := make([]T, n)
	for i := range v {
		v[i] = T(rng.NormFloat64() * math.Pow(10, float64(rng.IntN(7)-3)))
	}
	return v
}

var lengths = []int{1, 2, 255, 256, 257, 511, 512, 513, 1000}

// TestRoundTrip checks the encoded size and the maximum error of each codec, and that decoding the same bytes twice
// gives the same result.
func TestRoundTrip(t *testing.T) {
	eachCodec(t, func(t *testing.T, word spec.Codec) {
		roundTrip[float32](t, word)
		roundTrip[float64](t, word)
	})
}

func roundTrip[T wire.Float](t *testing.T, word spec.Codec) {
	c, rng := codec.ForName[T](word), rand.New(rand.NewPCG(1, 2))
	elements, bytes := c.IndependentUnitSize()
	if c.EncodedSize(0) != 0 || !codec.DecodesOnlyWholeVectors(c) && c.EncodedSize(elements) != bytes {
		t.Errorf("a unit of %d elements has %d bytes, Size says %d", elements, bytes, c.EncodedSize(elements))
	}
	for _, n := range lengths {
		v := normal[T](rng, n)
		p := c.Append([]byte("before"), v, rng)
		if string(p[:6]) != "before" || len(p) != 6+c.EncodedSize(n) {
			t.Fatalf("%d elements: %d bytes, want %d", n, len(p)-6, c.EncodedSize(n))
		}
		got, again := make([]T, n), make([]T, n)
		if err := errors.Join(c.Decode(got, p[6:]), c.Decode(again, p[6:])); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, again) {
			t.Error("decoded twice, it differs")
		}
		unit := elements
		if codec.DecodesOnlyWholeVectors(c) {
			unit = n
		}
		var of []float64
		for i := range v {
			if i%unit == 0 {
				of = of[:0]
				for _, x := range v[i:min(i+unit, n)] {
					of = append(of, float64(x))
				}
			}
			if miss := math.Abs(float64(got[i]) - float64(v[i])); miss > bounds[word](float64(v[i]), of) {
				t.Errorf("%d elements: %v became %v; its unit is %v", n, v[i], got[i], of)
			}
		}
	}
}

// TestSpans checks that elements decoded from a byte range equal the same elements of the whole decoded vector.
func TestSpans(t *testing.T) {
	eachCodec(t, func(t *testing.T, word spec.Codec) {
		c, rng := codec.ForName[float32](word), rand.New(rand.NewPCG(3, 4))
		if codec.DecodesOnlyWholeVectors(c) {
			return // Skip this codec, which decodes only whole vectors.
		}
		elements, _ := c.IndependentUnitSize()
		for _, n := range lengths {
			p := c.Append(nil, normal[float32](rng, n), rng)
			whole := make([]float32, n)
			if err := c.Decode(whole, p); err != nil {
				t.Fatal(err)
			}
			for range 50 {
				from := rng.IntN(n)
				to := from + 1 + rng.IntN(n-from)
				start, end, first := codec.EncodedByteRange(c, n, from, to)
				part := make([]float32, min((to+elements-1)/elements*elements, n)-first)
				if err := c.Decode(part, p[start:end]); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(part[from-first:to-first], whole[from:to]) {
					t.Fatalf("elements %d to %d of %d differ", from, to, n)
				}
			}
		}
	})
}

// TestRefuses checks that decoding returns an error for data of a wrong length and for non-finite elements.
func TestRefuses(t *testing.T) {
	eachCodec(t, func(t *testing.T, word spec.Codec) {
		c, rng := codec.ForName[float32](word), rand.New(rand.NewPCG(5, 6))
		p := c.Append(nil, normal[float32](rng, 300), rng)
		for n := range len(p) {
			if c.Decode(make([]float32, 300), p[:n]) == nil {
				t.Fatalf("%d of %d bytes are decoded", n, len(p))
			}
		}
		if c.Decode(make([]float32, 300), append(slices.Clone(p), 0)) == nil {
			t.Error("a byte too many is decoded")
		}
		for range 2000 { // Decoding random bytes must return an error or finite numbers.
			for i := range p {
				p[i] = byte(rng.Uint32())
			}
			v := make([]float32, 300)
			if err := c.Decode(v, p); err == nil {
				for _, x := range v {
					if x-x != 0 {
						t.Fatalf("%v is decoded", x)
					}
				}
			} else if _, indexed := word.TopKShare(); !indexed && !errors.Is(err, wire.ErrNotFinite) {
				t.Fatal(err)
			}
		}
	})
}

// TestExtremes checks the encoding of zeros and of the largest and smallest numbers.
func TestExtremes(t *testing.T) {
	eachCodec(t, func(t *testing.T, word spec.Codec) {
		c, rng := codec.ForName[float32](word), rand.New(rand.NewPCG(7, 8))
		for _, v := range [][]float32{
			make([]float32, 300), {math.MaxFloat32 / 2, -math.MaxFloat32 / 2}, {math.SmallestNonzeroFloat32, 0},
		} {
			got := make([]float32, len(v))
			if err := c.Decode(got, c.Append(nil, v, rng)); err != nil {
				t.Errorf("%v: %v", v[:2], err)
			}
			for i := range v {
				if v[i] == 0 && got[i] != 0 {
					t.Errorf("0 became %v", got[i])
				}
			}
		}
	})
}

// TestIntegersGolden compares the scale, the position of the scale and the encoded integers with values computed by
// hand.
func TestIntegersGolden(t *testing.T) {
	for _, tt := range []struct {
		word spec.Codec
		// The integers of the first unit are q = 127 or 7, then −2, and 1 at the end. The second unit contains only the
		// largest q.
		first, rest []byte
	}{
		{spec.CodecInt8, append(append([]byte{0, 0, 0, 0x40, 127, 0xfe}, make([]byte, 253)...), 1),
			[]byte{0x04, 0x02, 0x81, 0x3b, 127}}, // The scale is s = 0.5/127.
		{spec.CodecInt4, append(append([]byte{0, 0, 0, 0x40, 0xe7}, make([]byte, 126)...), 0x10),
			[]byte{0x25, 0x49, 0x92, 0x3d, 7}}, // The scale is s = 0.5/7.
	} {
		c, v, largest := codec.ForName[float32](tt.word), make([]float32, 257), float32(tt.rest[4])
		v[0], v[1], v[255], v[256] = 2*largest, -4, 2, 0.5
		want := slices.Concat(tt.first, tt.rest)
		for seed := range uint64(20) { // Integer multiples of the scale are encoded exactly, whatever the seed.
			if got := c.Append(nil, v, rand.New(rand.NewPCG(seed, 0))); !slices.Equal(got, want) {
				t.Fatalf("%s: packed as %x, want %x", tt.word, got, want)
			}
		}
		got := make([]float32, 257)
		if err := c.Decode(got, want); err != nil || got[0] != 2*largest || got[1] != -4 || got[2] != 0 ||
			got[255] != 2 || got[256] != float32(math.Float32frombits(binary.LittleEndian.Uint32(tt.rest))*largest) {
			t.Errorf("%s: decoded %v, %v", tt.word, got, err)
		}
	}
}

// TestInt4Halves checks the decoding of 4-bit integers from −8 to 7, two of which share a byte. The decoder must ignore
// the unused half of the last byte.
func TestInt4Halves(t *testing.T) {
	c, got := codec.ForName[float64](spec.CodecInt4), make([]float64, 5)
	for _, spare := range []byte{0, 0x70} {
		err := c.Decode(got, []byte{0, 0, 0, 0x3f, 0x18, 0x7f, 0x0e | spare}) // The scale is s = 0.5.
		if want := []float64{-4, 0.5, -0.5, 3.5, -1}; err != nil || !slices.Equal(got, want) {
			t.Errorf("decoded %v, %v; want %v", got, err, want)
		}
	}
}

// TestIntegersExtremes checks the encoding of the largest numbers, and that non-finite scales and elements are
// rejected.
func TestIntegersExtremes(t *testing.T) {
	for word, lowest := range map[spec.Codec]byte{spec.CodecInt8: 0x80, spec.CodecInt4: 0x08} {
		c, got := codec.ForName[float32](word), make([]float32, 2)
		// The largest integer times the rounded scale may exceed the range of float32.
		far := []float32{math.MaxFloat32, -math.MaxFloat32}
		p := c.Append(nil, far, rand.New(rand.NewPCG(1, 1)))
		if err := c.Decode(got, p); err != nil || got[0] < 0.9999*math.MaxFloat32 || got[1] != -got[0] {
			t.Errorf("%s: %v, %v", word, got, err)
		}
		p[4] = lowest // Encode the integer −128 or −8, which must be rejected.
		if err := c.Decode(got, p); !errors.Is(err, wire.ErrNotFinite) {
			t.Errorf("%s: an infinite element is taken: %v, %v", word, got, err)
		}
		clear(p[4:])
		// Scales of −2, NaN and ∞ must be rejected.
		for _, s := range [][]byte{{0, 0, 0, 0xc0}, {0, 0, 0xc0, 0x7f}, {0, 0, 0x80, 0x7f}} {
			copy(p, s)
			if err := c.Decode(got, p); !errors.Is(err, wire.ErrNotFinite) {
				t.Errorf("%s: the scale %x is taken: %v, %v", word, s, got, err)
			}
		}
	}
}

// TestIntegersAreUnbiased checks that the mean of many random roundings of an element equals the element. Rounding to
// nearest would fail this test.
func TestIntegersAreUnbiased(t *testing.T) {
	for word, scale := range map[spec.Codec]float64{spec.CodecInt8: 1, spec.CodecInt4: 127. / 7} {
		c, rng := codec.ForName[float64](word), rand.New(rand.NewPCG(9, 10))
		const repeats = 20000
		v, sum, got := []float64{127, 0.3, -0.3, 17.75, -99.1, 0.01}, make([]float64, 6), make([]float64, 6)
		for range repeats {
			if err := c.Decode(got, c.Append(nil, v, rng)); err != nil {
				t.Fatal(err)
			}
			for i, x := range got {
				sum[i] += x / repeats
			}
		}
		for i := range v {
			// The limit is four standard deviations of the mean of random roundings.
			if math.Abs(sum[i]-v[i]) > 4*0.5*scale/math.Sqrt(repeats) {
				t.Errorf("%s: %v is %v in the mean", word, v[i], sum[i])
			}
		}
	}
}

func TestBFloat16IsNearestEven(t *testing.T) {
	c := codec.ForName[float32](spec.CodecBFloat16)
	for _, tt := range []struct{ bits, want uint32 }{
		{0x3f80_8000, 0x3f80_0000}, {0x3f81_8000, 0x3f82_0000}, {0x3f80_8001, 0x3f81_0000}, {0x3f80_7fff, 0x3f80_0000},
		{0x8000_0000, 0x8000_0000},
	} {
		got := make([]float32, 1)
		if err := c.Decode(got, c.Append(nil, []float32{math.Float32frombits(tt.bits)}, nil)); err != nil ||
			math.Float32bits(got[0]) != tt.want {
			t.Errorf("%x becomes %x, %v; want %x", tt.bits, math.Float32bits(got[0]), err, tt.want)
		}
	}
}
