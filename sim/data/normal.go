package data

import "math/rand/v2"

// normals draws from N(0, 1): what the NormFloat64 of the same generator does, to the bit, without its calls through
// interfaces. Of its ziggurat only the case in which a strip takes the number at once is here, 99 % of all; the others
// are left to NormFloat64.
type normals struct {
	pcg   *rand.PCG
	drawn uint64 // what NormFloat64 is to begin with,
	again bool   // if it has not yet
	slow  *rand.Rand
}

func newNormals(pcg *rand.PCG) *normals {
	n := &normals{pcg: pcg}
	n.slow = rand.New((*repeated)(n))
	return n
}

// next is one number.
func (n *normals) next() float64 {
	u := n.pcg.Uint64()
	if z, ok := quick(u); ok {
		return z
	}
	return n.other(u)
}

// other is the number that begins with a draw that is not a quick one.
func (n *normals) other(u uint64) float64 {
	n.drawn, n.again = u, true
	return n.slow.NormFloat64()
}

// repeated is the generator, with the last draw once more.
type repeated normals

// Uint64 implements rand.Source.
func (r *repeated) Uint64() uint64 {
	if r.again {
		r.again = false
		return r.drawn
	}
	return r.pcg.Uint64()
}

// strip is one of the ziggurat's: it takes j·width at once for |j| < least.
type strip struct {
	width float64
	least uint32
}

// quick is the number that a draw of 64 bits gives, unless another draw is needed.
func quick(u uint64) (z float64, ok bool) {
	j, s := int32(u), &strips[u>>32%uint64(len(strips))]
	sign := j >> 31
	return float64(j) * s.width, uint32((j^sign)-sign) < s.least
}

// strips is asked of NormFloat64 itself.
var strips = func() (all [128]strip) {
	for i := range all {
		s := &all[i]
		for bit := uint32(1) << 30; bit > 0; bit >>= 1 {
			if _, quick := tried(i, s.least+bit-1); quick {
				s.least += bit
			}
		}
		if s.least > 1 {
			s.width, _ = tried(i, 1)
		}
	}
	return all
}()

// tried is what NormFloat64 makes of j in strip i, and whether that was all that it drew.
func tried(i int, j uint32) (float64, bool) {
	t := trial{uint64(i)<<32 | uint64(j), 0}
	z := rand.New(&t).NormFloat64()
	return z, t.draws == 1
}

// trial is a generator whose first number is given, and whose others make an end.
type trial struct {
	first uint64
	draws int
}

// Uint64 implements rand.Source.
func (t *trial) Uint64() uint64 {
	if t.draws++; t.draws == 1 {
		return t.first
	}
	return 1 << 63
}
