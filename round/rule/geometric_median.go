package rule

import (
	"math"

	"github.com/fedmesh/fedmesh/wire"
)

// GeometricMedian is the name of the rule of the approximate geometric median: the vector z that minimises Σ α_k ‖v_k −
// z‖ for the updates v_k, with weights α_k proportional to ContributionFactor. The rule runs 4 passes of the smoothed
// Weiszfeld algorithm from z = 0 (Pillutla et al. 2022, Algorithm 2): β_k = α_k / max(ν, ‖v_k − z‖), z ← Σ β_k v_k / Σ
// β_k, with the smoothing constant ν = 10⁻⁶.
const GeometricMedian = "geometric_median"

const (
	weiszfeldPasses    = 4
	weiszfeldSmoothing = 1e-6
)

type geometricMedian[T wire.Float] struct{ weightedRule[T] }

func newGeometricMedian[T wire.Float](Config) Rule[T] { return &geometricMedian[T]{} }

func (*geometricMedian[T]) PassCount() int { return 2 }

// AssessUpdates implements Rule. It does not store the estimate z of the median. Instead, each pass computes z again,
// part by part, from the factors of the previous pass.
func (g *geometricMedian[T]) AssessUpdates(s *UpdateSet[T]) (UpdateAssessment, error) {
	if err := requireDraws(GeometricMedian, s.TotalDrawCount(), 1); err != nil {
		return UpdateAssessment{}, err
	}
	unscaled := *s
	unscaled.UpdateScale = 1
	squares := make([]float64, len(s.Updates)) // squared distances of the updates from the starting point 0
	for k := range squares {
		squares[k] = s.Updates[k].ClippedNorm() * s.Updates[k].ClippedNorm()
	}
	for pass := range weiszfeldPasses {
		if pass > 0 {
			var err error
			squares, err = squaredDistances(s, func(z []float64, from int) error {
				return g.AggregatePart(z, &unscaled,
					from)
			})
			if err != nil {
				return UpdateAssessment{}, err
			}
		}
		g.resetUpdateFactors(s, 0)
		for k := range s.Updates {
			g.updateFactors[k] = s.Updates[k].ContributionFactor / max(weiszfeldSmoothing, math.Sqrt(squares[k]))
			g.divisor += g.updateFactors[k]
		}
	}
	return UpdateAssessment{}, nil
}
