package rule

import (
	"math"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// CenteredClipping begins at the last aggregate v, 0 before the first round, and adds what the updates differ from it,
// each difference clipped to the radius τ (Karimireddy et al. 2021, with one pass):
// v ← v + Σ c_k (v_k − v) min(1, τ/‖v_k − v‖), D = Scale·v. The state is v.
const CenteredClipping = "centered_clipping"

type centeredClipping[T wire.Float] struct {
	weighted[T]
	radius float64
	rest   float64 // of v in D
}

func newCenteredClipping[T wire.Float](c Config) Rule[T] {
	return &centeredClipping[T]{radius: c.Radius}
}

func checkRadius(c Config, k *spec.Check) {
	if c.Rule != CenteredClipping {
		k.Need(c.Radius == 0, "radius", "is %v; it goes with the rule %s only", c.Radius, CenteredClipping)
		return
	}
	k.Need(c.Radius > 0 && !math.IsInf(c.Radius, 1), "radius", "must be above 0 and finite, is %v", c.Radius)
}

func (*centeredClipping[T]) Passes() int     { return 2 }
func (*centeredClipping[T]) State() []string { return []string{"centre"} }

// Weigh implements Rule.
func (r *centeredClipping[T]) Weigh(s *Set[T]) (Weighed, error) {
	n, v := s.Draws(), s.State[0]
	if err := enough(CenteredClipping, n, 1); err != nil {
		return Weighed{}, err
	}
	squares, err := distances(s, func(x []float64, from int) error {
		copy(x, v[from:])
		return nil
	})
	if err != nil {
		return Weighed{}, err
	}
	var w Weighed
	r.begin(s, float64(n))
	sum := 0.0
	for k := range s.Shares {
		r.factors[k] = s.Shares[k].Factor
		if far := math.Sqrt(squares[k]); far > r.radius {
			r.factors[k] *= r.radius / far
			w.Far, w.Distances = append(w.Far, k), append(w.Distances, far)
		}
		sum += r.factors[k]
	}
	r.rest = 1 - sum/float64(n)
	return w, nil
}

// Fold implements Rule.
func (r *centeredClipping[T]) Fold(dst []float64, s *Set[T], from int) error {
	unscaled := *s
	unscaled.Scale = 1
	if err := r.weighted.Fold(dst, &unscaled, from); err != nil {
		return err
	}
	v := s.State[0][from:]
	for j, x := range dst {
		v[j] = x + float64(r.rest*v[j])
		dst[j] = float64(s.Scale * v[j])
	}
	return nil
}
