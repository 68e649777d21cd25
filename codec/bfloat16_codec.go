package codec

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/wire"
)

// bfloat16Codec encodes each element as bfloat16, the upper half of a float32, and rounds to nearest even.
type bfloat16Codec[T wire.Float] struct{}

func (bfloat16Codec[T]) IndependentUnitSize() (elements, bytes int) { return 1, 2 }
func (bfloat16Codec[T]) EncodedSize(n int) int                      { return 2 * n }

func (c bfloat16Codec[T]) Append(dst []byte, v []T, _ *rand.Rand) []byte {
	dst = slices.Grow(dst, c.EncodedSize(len(v)))
	for _, x := range v {
		b := math.Float32bits(float32(x))
		dst = binary.LittleEndian.AppendUint16(dst, uint16((b+0x7fff+b>>16&1)>>16))
	}
	return dst
}

func (bfloat16Codec[T]) Decode(dst []T, p []byte) error {
	if err := checkEncodedLength(len(p), 2*len(dst), len(dst)); err != nil {
		return err
	}
	for i := range dst {
		x := math.Float32frombits(uint32(binary.LittleEndian.Uint16(p[2*i:])) << 16)
		if x-x != 0 {
			return notFiniteError(i, x)
		}
		dst[i] = T(x)
	}
	return nil
}
