package rule

import "github.com/fedmesh/fedmesh/wire"

// Mean is the weighted mean D = Scale·Σ f_k v_k / N (ch5 (5.11) in Δ form; lecture (14), (34)), by buckets: see
// [BucketedSum]. f_k is the ContributionFactor, times MaxCountedNorm/‖v_k‖ where that is below 1.
const Mean = "mean"

type mean[T wire.Float] struct{ weightedRule[T] }

func newMean[T wire.Float](Config) Rule[T] { return &mean[T]{} }

func (*mean[T]) PassCount() int { return 1 }

// AssessUpdates implements Rule. It reads nothing.
func (m *mean[T]) AssessUpdates(s *UpdateSet[T]) (UpdateAssessment, error) {
	n := s.TotalDrawCount()
	m.resetUpdateFactors(s, float64(n))
	for k := range s.Updates {
		m.updateFactors[k] = s.Updates[k].ContributionFactor
	}
	return UpdateAssessment{}, requireDraws(Mean, n, 1)
}
