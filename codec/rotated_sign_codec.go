package codec

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/wire"
)

// rotatedSignCodec encodes the signs of a rotated vector. The vector x is padded with zeros to d' elements, a power of
// two, and rotated by R = HD/√d', where D is a diagonal matrix of random signs and H is the Hadamard matrix. The
// encoding contains a float32 scale s = ‖x‖²/‖Rx‖₁, the 8-byte seed of D, and one bit per element of Rx, set if the
// element is negative. The decoded vector R⁻¹(s·signs) is biased (Suresh et al. 2017; Vargaftik et al. 2021: DRIVE).
//
// Decoding needs no configuration, since the encoding contains the seed. It is exact except for one product and one
// quotient, each rounded separately, since H·signs has integer elements.
type rotatedSignCodec[T wire.Float] struct{}

// signHeaderBytes is the encoded size of the scale (4 bytes) and the seed (8 bytes).
const signHeaderBytes = 12

// paddedLength returns the smallest power of two that is at least n.
func paddedLength(n int) int { return 1 << bits.Len(uint(n-1)) }

func (rotatedSignCodec[T]) IndependentUnitSize() (elements, bytes int) { return 0, 0 }

// EncodedSize returns the encoded size, in bytes, of n elements that are padded to d' elements: 12 + ⌈d'/8⌉, or 0 if n
// is 0.
func (rotatedSignCodec[T]) EncodedSize(n int) int {
	if n == 0 {
		return 0
	}
	return signHeaderBytes + (paddedLength(n)+7)/8
}

func (c rotatedSignCodec[T]) Append(dst []byte, v []T, rng *rand.Rand) []byte {
	if len(v) == 0 {
		return dst
	}
	turned, squares, sum := make([]float64, paddedLength(len(v))), 0.0, 0.0
	for i, x := range v {
		turned[i] = float64(x)
		squares += float64(float64(x) * float64(x))
	}
	seed := rng.Uint64()
	flipSigns(turned[:len(v)], seed)
	applyHadamard(turned)
	for _, y := range turned {
		sum += math.Abs(y)
	}
	s, root := 0.0, math.Sqrt(float64(len(turned)))
	if sum > 0 {
		s = min(squares/(sum/root), math.MaxFloat32/root)
	}
	dst = slices.Grow(dst, c.EncodedSize(len(v)))
	dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(s)))
	dst = binary.LittleEndian.AppendUint64(dst, seed)
	for i, y := range turned {
		if i%8 == 0 {
			dst = append(dst, 0)
		}
		if y < 0 {
			dst[len(dst)-1] |= 1 << (i % 8)
		}
	}
	return dst
}

func (c rotatedSignCodec[T]) Decode(dst []T, p []byte) error {
	if err := checkEncodedLength(len(p), c.EncodedSize(len(dst)), len(dst)); err != nil || len(dst) == 0 {
		return err
	}
	s := math.Float32frombits(binary.LittleEndian.Uint32(p))
	if s-s != 0 || s < 0 {
		return notFiniteError(0, s)
	}
	seed := binary.LittleEndian.Uint64(p[4:])
	p = p[signHeaderBytes:]
	n := make([]int32, paddedLength(len(dst)))
	for i := range n {
		n[i] = 1 - 2*int32(p[i/8]>>(i%8)&1)
	}
	applyHadamard(n)
	flipSigns(n[:len(dst)], seed)
	root := math.Sqrt(float64(len(n)))
	for i := range dst {
		x := float32(float64(float64(s)*float64(n[i])) / root)
		if x-x != 0 {
			return notFiniteError(i, x)
		}
		dst[i] = T(x)
	}
	return nil
}

// flipSigns multiplies each element of v by a random sign. Each number drawn from PCG(seed, 0) contains the signs of 64
// elements, lowest bit first; a bit of 1 means −1.
func flipSigns[N float64 | int32](v []N, seed uint64) {
	pcg, draw := rand.NewPCG(seed, 0), uint64(0)
	for i := range v {
		if i%64 == 0 {
			draw = pcg.Uint64()
		}
		if draw>>(i%64)&1 == 1 {
			v[i] = -v[i]
		}
	}
}

// applyHadamard multiplies v by the Hadamard matrix in place. The length of v must be a power of two.
func applyHadamard[N float64 | int32](v []N) {
	for half := 1; half < len(v); half *= 2 {
		for at := 0; at < len(v); at += 2 * half {
			low, high := v[at:at+half], v[at+half:at+2*half]
			for i, a := range low {
				b := high[i]
				low[i], high[i] = a+b, a-b
			}
		}
	}
}
