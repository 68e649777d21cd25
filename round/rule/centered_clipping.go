package rule

import (
	"math"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// CenteredClipping is the name of the rule of centred clipping (Karimireddy et al. 2021, with one pass). It starts at
// the last aggregate v, which is 0 before the first round. It adds the differences of the updates v_k from v, each
// clipped to the radius τ: v ← v + Σ c_k (v_k − v) min(1, τ/‖v_k − v‖), where c_k is the ContributionFactor of update k
// divided by the number of draws. The result is D = Scale·v, and v is the rule's state.
const CenteredClipping = "centered_clipping"

type centeredClipping[T wire.Float] struct {
	weightedRule[T]
	radius             float64
	lastAggregateShare float64 // weight of the last aggregate v in the result D
}

func newCenteredClipping[T wire.Float](c Config) Rule[T] {
	return &centeredClipping[T]{radius: c.ClippingRadius}
}

func checkClippingRadius(c Config, k *spec.ProblemList) {
	if c.Rule != CenteredClipping {
		k.Require(c.ClippingRadius == 0, "radius", "is %v, but only the rule %s uses this key: remove it",
			c.ClippingRadius,
			CenteredClipping)
		return
	}
	k.Require(c.ClippingRadius > 0 && !math.IsInf(c.ClippingRadius, 1), "radius",
		"must be finite and positive, but is %v",
		c.ClippingRadius)
}

func (*centeredClipping[T]) PassCount() int             { return 2 }
func (*centeredClipping[T]) StateVectorNames() []string { return []string{"centre"} }

// AssessUpdates implements Rule.
func (r *centeredClipping[T]) AssessUpdates(s *UpdateSet[T]) (UpdateAssessment, error) {
	n, v := s.TotalDrawCount(), s.RuleState[0]
	if err := requireDraws(CenteredClipping, n, 1); err != nil {
		return UpdateAssessment{}, err
	}
	squares, err := squaredDistances(s, func(x []float64, from int) error {
		copy(x, v[from:])
		return nil
	})
	if err != nil {
		return UpdateAssessment{}, err
	}
	var w UpdateAssessment
	r.resetUpdateFactors(s, float64(n))
	sum := 0.0
	for k := range s.Updates {
		r.updateFactors[k] = s.Updates[k].ContributionFactor
		if far := math.Sqrt(squares[k]); far > r.radius {
			r.updateFactors[k] *= r.radius / far
			w.OutsideRadiusIndices, w.OutsideRadiusDistances = append(w.OutsideRadiusIndices, k),
				append(w.OutsideRadiusDistances, far)
		}
		sum += r.updateFactors[k]
	}
	r.lastAggregateShare = 1 - sum/float64(n)
	return w, nil
}

// AggregatePart implements Rule.
func (r *centeredClipping[T]) AggregatePart(dst []float64, s *UpdateSet[T], from int) error {
	unscaled := *s
	unscaled.UpdateScale = 1
	if err := r.weightedRule.AggregatePart(dst, &unscaled, from); err != nil {
		return err
	}
	v := s.RuleState[0][from:]
	for j, x := range dst {
		v[j] = x + float64(r.lastAggregateShare*v[j])
		dst[j] = float64(s.UpdateScale * v[j])
	}
	return nil
}
