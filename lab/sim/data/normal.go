package data

import (
	"math"
	"math/rand/v2"
)

// normals generates exactly the same numbers as rand.NormFloat64, but faster, because it makes no interface calls. It
// implements the two common cases of the ziggurat algorithm. In the first case (99 %), a strip accepts the number
// immediately. In the second case, a second random number gives a clear decision. In all other cases, it calls
// NormFloat64.
type normals struct {
	pcg           *rand.PCG
	drawn         [2]uint64 // saved random bits that NormFloat64 must read again
	repeatedDraws int       // number of saved values in drawn that are still unread
	slow          *rand.Rand
}

func newNormals(pcg *rand.PCG) *normals {
	n := &normals{pcg: pcg}
	n.slow = rand.New((*repeated)(n))
	return n
}

// next returns the next normally distributed number.
func (n *normals) next() float64 {
	u := n.pcg.Uint64()
	if z, ok := quickNormal(u); ok {
		return z
	}
	return n.other(u)
}

// other returns the number for the random bits u if quickNormal does not accept them.
func (n *normals) other(u uint64) float64 {
	for {
		i := u >> 32 % uint64(len(strips))
		if i == 0 { // tail of the distribution
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

// repeated is a random source that returns the saved values of normals before new values.
type repeated normals

// Uint64 implements rand.Source.
func (r *repeated) Uint64() uint64 {
	if r.repeatedDraws > 0 {
		r.repeatedDraws--
		return r.drawn[len(r.drawn)-1-r.repeatedDraws]
	}
	return r.pcg.Uint64()
}

// strip is a horizontal strip of the ziggurat algorithm. The number j·width is accepted immediately if |j| < least.
type strip struct {
	width float64
	least uint32
}

// quickNormal returns the number that belongs to the random bits u. ok is false if the strip does not accept the number
// immediately.
func quickNormal(u uint64) (z float64, ok bool) {
	j, s := int32(u), &strips[u>>32%uint64(len(strips))]
	sign := j >> 31
	return float64(j) * s.width, uint32((j^sign)-sign) < s.least
}

// strips contains the strips that NormFloat64 uses. The program finds their limits by calls of NormFloat64.
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

// wedge is the part of a strip that contains the curve exp(−x²/2), between the strip's upper and lower edges.
type wedge struct {
	half      float64 // value of x²/2 at the point where the curve meets the lower edge
	low, rise float64 // lower edge, and height of the strip
}

// wedges is computed from the widths of the strips; wedges[0] is not used.
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

// below reports whether the point at x is below the curve exp(−x²/2). The second random number determines the height of
// the point. sure is false if the point is so close to the curve that the float32 rounding in NormFloat64 decides.
func (w *wedge) below(x float64, second uint64) (below, sure bool) {
	const near = 1e-6
	y := w.low + w.rise*(float64(second<<11>>11)/(1<<53))
	s := w.half - x*x/2                              // on the curve, the height is low·exp(s) with 0 ≤ s < 0.8
	least := w.low * (1 + s*(1+s/2*(1+s/3*(1+s/4)))) // lower bound of the curve: Taylor series up to s⁴
	// upper bound of the curve: the rest of the series is below e·s⁵/5!
	most := least + w.low*s*s*s*s*s*(math.E/(2*3*4*5))
	return y < least-near, y < least-near || y > most+near
}

// trialNormFloat64 calls NormFloat64 with random bits that select strip i and the number j. trialNormFloat64 also
// reports whether NormFloat64 used only these bits.
func trialNormFloat64(i int, j uint32) (float64, bool) {
	t := trial{uint64(i)<<32 | uint64(j), 0}
	z := rand.New(&t).NormFloat64()
	return z, t.draws == 1
}

// trial is a random source that first returns the value first and then a constant that ends the loop of NormFloat64.
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
