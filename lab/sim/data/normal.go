package data

import (
	"math"
	"math/rand/v2"
)

// normals draws from N(0, 1): what the NormFloat64 of the same generator does, to the bit, without its calls through
// interfaces. Of its ziggurat the two usual cases are here: a strip takes the number at once, 99 % of all, or a second
// number tells that it is clearly below the curve or above it. The others are left to NormFloat64.
type normals struct {
	pcg           *rand.PCG
	drawn         [2]uint64 // of these the last ones are what NormFloat64 is to begin with,
	repeatedDraws int       // as many as it has not had yet
	slow          *rand.Rand
}

func newNormals(pcg *rand.PCG) *normals {
	n := &normals{pcg: pcg}
	n.slow = rand.New((*repeated)(n))
	return n
}

// next is one number.
func (n *normals) next() float64 {
	u := n.pcg.Uint64()
	if z, ok := quickNormal(u); ok {
		return z
	}
	return n.other(u)
}

// other is the number that begins with a draw that is not a quick one.
func (n *normals) other(u uint64) float64 {
	for {
		i := u >> 32 % uint64(len(strips))
		if i == 0 { // the tail
			n.drawn[1], n.repeatedDraws = u, 1
			return n.slow.NormFloat64()
		}
		x, second := float64(int32(u))*strips[i].width, n.pcg.Uint64()
		switch below, sure := wedges[i].below(x, second); {
		case !sure:
			n.drawn, n.repeatedDraws = [2]uint64{u, second}, 2
			return n.slow.NormFloat64()
		case below:
			return x
		}
		u = n.pcg.Uint64()
		if z, ok := quickNormal(u); ok {
			return z
		}
	}
}

// repeated is the generator, with the last draws once more.
type repeated normals

// Uint64 implements rand.Source.
func (r *repeated) Uint64() uint64 {
	if r.repeatedDraws > 0 {
		r.repeatedDraws--
		return r.drawn[len(r.drawn)-1-r.repeatedDraws]
	}
	return r.pcg.Uint64()
}

// strip is one of the ziggurat's: it takes j·width at once for |j| < least.
type strip struct {
	width float64
	least uint32
}

// quickNormal is the number that a draw of 64 bits gives, unless another draw is needed.
func quickNormal(u uint64) (z float64, ok bool) {
	j, s := int32(u), &strips[u>>32%uint64(len(strips))]
	sign := j >> 31
	return float64(j) * s.width, uint32((j^sign)-sign) < s.least
}

// strips is asked of NormFloat64 itself.
var strips = func() (all [128]strip) {
	for i := range all {
		s := &all[i]
		for bit := uint32(1) << 30; bit > 0; bit >>= 1 {
			if _, quick := trialNormFloat64(i, s.least+bit-1); quick {
				s.least += bit
			}
		}
		s.width, _ = trialNormFloat64(i, 1)
	}
	return all
}()

// wedge is the part of a strip in which the curve exp(−x²/2) runs, from the strip's upper edge to its lower one.
type wedge struct {
	half      float64 // x²/2 where the curve meets the lower edge
	low, rise float64 // the lower edge, and the height of the strip
}

// wedges is made of the strips' widths; wedges[0] is not used.
var wedges = func() (all [len(strips)]wedge) {
	above := 1.0
	for i := 1; i < len(all); i++ {
		x := strips[i].width * (1 << 31)
		low := math.Exp(-x * x / 2)
		all[i] = wedge{half: x * x / 2, low: low, rise: above - low}
		above = low
	}
	return all
}()

// below reports whether the point that a second draw puts over x is below the curve. It is sure unless the point is so
// near that rounding may decide: NormFloat64 compares in float32.
func (w *wedge) below(x float64, second uint64) (below, sure bool) {
	const near = 1e-6
	y := w.low + w.rise*(float64(second<<11>>11)/(1<<53))
	s := w.half - x*x/2                                // the curve is low·exp(s), and 0 ≤ s < 0.8:
	least := w.low * (1 + s*(1+s/2*(1+s/3*(1+s/4))))   // without the terms from s⁵ on,
	most := least + w.low*s*s*s*s*s*(math.E/(2*3*4*5)) // which are less than e·s⁵/5!
	return y < least-near, y < least-near || y > most+near
}

// trialNormFloat64 is what NormFloat64 makes of j in strip i, and whether that was all that it drew.
func trialNormFloat64(i int, j uint32) (float64, bool) {
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
