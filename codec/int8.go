package codec

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/wire"
)

// int8s is units of 256 elements: a float32 scale s, then an int8 q for each element, which stands for s·q. s is the
// largest magnitude of the unit over 127, and q is x/s rounded at random to one of its two neighbours, up with the
// probability of what lies below: so the mean of q is x/s (QSGD: Alistarh et al. 2017).
type int8s[T wire.Float] struct{}

const (
	perUnit   = 256
	unitBytes = 4 + perUnit
	most      = 127 // of |q|
)

func (int8s[T]) Unit() (elements, bytes int) { return perUnit, unitBytes }
func (int8s[T]) Size(n int) int              { return n + 4*((n+perUnit-1)/perUnit) }

func (c int8s[T]) Append(dst []byte, v []T, rng *rand.Rand) []byte {
	dst = slices.Grow(dst, c.Size(len(v)))
	for len(v) > 0 {
		unit := v[:min(perUnit, len(v))]
		v = v[len(unit):]
		largest := 0.0
		for _, x := range unit {
			largest = max(largest, math.Abs(float64(x)))
		}
		s := scaleOf(largest)
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(s))
		for _, x := range unit {
			q := 0.0
			if u := rng.Float64(); s > 0 {
				q = min(max(math.Floor(float64(x)/float64(s)+u), -most), most)
			}
			dst = append(dst, byte(int8(q)))
		}
	}
	return dst
}

// scaleOf is largest/127 in float32, so that 127 times it is finite. The product is rounded on its own: fused with what
// follows it would not be what it was.
func scaleOf(largest float64) float32 {
	s := float32(min(largest, math.MaxFloat32) / most)
	if x := float32(s * most); x-x != 0 {
		s = math.Nextafter32(s, 0)
	}
	return s
}

func (c int8s[T]) Decode(dst []T, p []byte) error {
	if err := checkLength(len(p), c.Size(len(dst)), len(dst)); err != nil {
		return err
	}
	for at := 0; at < len(dst); at += perUnit {
		s := math.Float32frombits(binary.LittleEndian.Uint32(p))
		p = p[4:]
		if x := float32(s * most); x-x != 0 || s < 0 {
			return notFinite(at, s)
		}
		unit := dst[at:min(at+perUnit, len(dst))]
		for i := range unit {
			unit[i] = T(float32(s * float32(int8(p[i]))))
		}
		p = p[len(unit):]
	}
	return nil
}
