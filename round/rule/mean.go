package rule

import "github.com/fedmesh/fedmesh/wire"

// Mean is the name of the rule of the weighted mean D = Scale·Σ f_k v_k / N of the updates v_k of N draws (Vlaski and
// Sayed, chapter 5, equation (5.11); lecture, equations (14) and (34)). It is computed as a [BucketedSum]. The factor
// f_k of update k is the ContributionFactor, multiplied by MaxNorm/‖v_k‖ if the norm ‖v_k‖ exceeds MaxNorm.
const Mean = "mean"

type mean[T wire.Float] struct{ weightedRule[T] }

func newMean[T wire.Float](Config) Rule[T] { return &mean[T]{} }

func (*mean[T]) PassCount() int { return 1 }

// AssessUpdates implements Rule. It does not read the elements of the updates.
func (m *mean[T]) AssessUpdates(s *UpdateSet[T]) (UpdateAssessment, error) {
	n := s.TotalDrawCount()
	m.resetUpdateFactors(s, float64(n))
	for k := range s.Updates {
		m.updateFactors[k] = s.Updates[k].ContributionFactor
	}
	return UpdateAssessment{}, requireDraws(Mean, n, 1)
}
