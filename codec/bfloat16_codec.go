package codec

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/wire"
)

// bfloat16 is the upper half of a float32, rounded to nearest even.
type bfloat16[T wire.Float] struct{}

func (bfloat16[T]) Unit() (elements, bytes int) { return 1, 2 }
func (bfloat16[T]) Size(n int) int              { return 2 * n }

func (c bfloat16[T]) Append(dst []byte, v []T, _ *rand.Rand) []byte {
	dst = slices.Grow(dst, c.Size(len(v)))
	for _, x := range v {
		b := math.Float32bits(float32(x))
		dst = binary.LittleEndian.AppendUint16(dst, uint16((b+0x7fff+b>>16&1)>>16))
	}
	return dst
}

func (bfloat16[T]) Decode(dst []T, p []byte) error {
	if err := checkLength(len(p), 2*len(dst), len(dst)); err != nil {
		return err
	}
	for i := range dst {
		x := math.Float32frombits(uint32(binary.LittleEndian.Uint16(p[2*i:])) << 16)
		if x-x != 0 {
			return notFinite(i, x)
		}
		dst[i] = T(x)
	}
	return nil
}
