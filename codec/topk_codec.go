package codec

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/wire"
)

// topKCodec encodes the k elements with the largest magnitudes as pairs of a uint32 index and a float32 value, in
// ascending order of index. Of equal magnitudes, the lower index is preferred. The other elements are decoded as 0, and
// the sender adds them to its next vector (error feedback: Stich et al. 2018; Karimireddy et al. 2019).
type topKCodec[T wire.Float] struct{ keptElementShare float64 }

const bytesPerPair = 8

// pairCount returns the number k of elements that are sent for a vector with n elements. It is the configured share of
// n, rounded, and at least 1.
func (c topKCodec[T]) pairCount(n int) int {
	return min(max(int(math.Round(c.keptElementShare*float64(n))), 1), n)
}

func (topKCodec[T]) IndependentUnitSize() (elements, bytes int) { return 0, 0 }
func (c topKCodec[T]) EncodedSize(n int) int                    { return bytesPerPair * c.pairCount(n) }

func (c topKCodec[T]) Append(dst []byte, v []T, _ *rand.Rand) []byte {
	k := c.pairCount(len(v))
	if k == 0 {
		return dst
	}
	sorted := make([]float64, len(v))
	for i, x := range v {
		sorted[i] = math.Abs(float64(x))
	}
	slices.Sort(sorted)
	least := sorted[len(v)-k]
	equal := k
	for _, x := range sorted[len(v)-k:] {
		if x > least {
			equal--
		}
	}
	dst = slices.Grow(dst, bytesPerPair*k)
	for i, x := range v {
		switch y := math.Abs(float64(x)); {
		case y < least, y == least && equal == 0:
			continue
		case y == least:
			equal--
		}
		dst = binary.LittleEndian.AppendUint32(dst, uint32(i))
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(x)))
	}
	return dst
}

func (c topKCodec[T]) Decode(dst []T, p []byte) error {
	if err := checkEncodedLength(len(p), c.EncodedSize(len(dst)), len(dst)); err != nil {
		return err
	}
	clear(dst)
	for next := uint32(0); len(p) > 0; p = p[bytesPerPair:] {
		i, x := binary.LittleEndian.Uint32(p), math.Float32frombits(binary.LittleEndian.Uint32(p[4:]))
		switch {
		case i < next || int64(i) >= int64(len(dst)):
			return fmt.Errorf("element index %d in a vector of %d elements is invalid: indices must be ascending "+
				"from %d",
				i, len(dst), next)
		case x-x != 0:
			return notFiniteError(int(i), x)
		}
		dst[i], next = T(x), i+1
	}
	return nil
}
