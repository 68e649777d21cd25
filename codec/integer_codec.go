package codec

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/wire"
)

// integerCodec encodes units of 256 elements as a float32 scale s, followed by a signed integer q of 8 or 4 bits per
// element, which represents s·q. The scale is the largest magnitude in the unit divided by the largest integer, 127 or
// 7. For an element x, the quotient x/s is rounded at random up or down, so that the mean of q is x/s (QSGD: Alistarh
// et al. 2017). With 4 bits, the first integer of a byte is in the lower half; an unused upper half is 0.
type integerCodec[T wire.Float] struct{ bitsPerElement int }

const elementsPerUnit = 256

// maxQuantizedMagnitude returns the largest magnitude of an encoded integer, which is 127 or 7.
func (c integerCodec[T]) maxQuantizedMagnitude() float64 {
	return float64(int(1)<<(c.bitsPerElement-1) - 1)
}

func (c integerCodec[T]) IndependentUnitSize() (elements, bytes int) {
	return elementsPerUnit, c.EncodedSize(elementsPerUnit)
}
func (c integerCodec[T]) EncodedSize(n int) int {
	return (c.bitsPerElement*n+7)/8 + 4*((n+elementsPerUnit-1)/elementsPerUnit)
}

func (c integerCodec[T]) Append(dst []byte, v []T, rng *rand.Rand) []byte {
	dst = slices.Grow(dst, c.EncodedSize(len(v)))
	most, mask := c.maxQuantizedMagnitude(), byte(1<<c.bitsPerElement-1)
	for unit := range slices.Chunk(v, elementsPerUnit) {
		largest := 0.0
		for _, x := range unit {
			largest = max(largest, math.Abs(float64(x)))
		}
		s := quantizationScale(largest, most)
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(s))
		for i, x := range unit {
			q := 0.0
			if u := rng.Float64(); s > 0 {
				q = min(max(math.Floor(float64(x)/float64(s)+u), -most), most)
			}
			if b := byte(int8(q)); c.bitsPerElement == 8 || i%2 == 0 {
				dst = append(dst, b&mask)
			} else {
				dst[len(dst)-1] |= b << 4
			}
		}
	}
	return dst
}

// quantizationScale returns largest/most in float32. It reduces the result if necessary, so that the product of the
// scale and most is finite. The product is rounded separately, since a fused operation could give a different result.
func quantizationScale(largest, most float64) float32 {
	s := float32(min(largest, math.MaxFloat32) / most)
	if x := float32(s * float32(most)); x-x != 0 {
		s = math.Nextafter32(s, 0)
	}
	return s
}

func (c integerCodec[T]) Decode(dst []T, p []byte) error {
	if err := checkEncodedLength(len(p), c.EncodedSize(len(dst)), len(dst)); err != nil {
		return err
	}
	most, q := float32(c.maxQuantizedMagnitude()), [elementsPerUnit]int8{}
	for at := 0; at < len(dst); at += elementsPerUnit {
		s := math.Float32frombits(binary.LittleEndian.Uint32(p))
		p = p[4:]
		if x := float32(s * most); x-x != 0 || s < 0 {
			return fmt.Errorf("the scale of the elements starting at %d is %v, but must be finite and not negative: %w",
				at,
				s, wire.ErrNotFinite)
		}
		unit := dst[at:min(at+elementsPerUnit, len(dst))]
		p = c.unpackIntegers(q[:len(unit)], p)
		for i := range unit {
			x := float32(s * float32(q[i]))
			if x-x != 0 { // The integer is −128 or −8, which no sender produces.
				return notFiniteError(at+i, x)
			}
			unit[i] = T(x)
		}
	}
	return nil
}

// unpackIntegers decodes len(q) integers from p into q and returns the remaining bytes.
func (c integerCodec[T]) unpackIntegers(q []int8, p []byte) []byte {
	if c.bitsPerElement == 8 {
		for i := range q {
			q[i] = int8(p[i])
		}
		return p[len(q):]
	}
	for i := range q {
		q[i] = int8(p[i/2]<<(4-i%2*4)) >> 4
	}
	return p[(len(q)+1)/2:]
}
