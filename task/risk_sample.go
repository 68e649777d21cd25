package task

import (
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/learner"
)

// MaxRiskSampleRows is the maximum number of rows on which an agent computes reported risks, to limit the computing
// time. The sampling error is about σ/64, where σ is the standard deviation of the rows' risks.
const MaxRiskSampleRows = 4096

// riskSample is a selection of rows for computing risks, cached until the rows change.
type riskSample[T learner.Float] struct {
	source, rows *learner.Samples[T]
	seed         uint64
}

// RiskSample returns the rows for computing risks: all rows, or MaxRiskSampleRows rows that the seed selects if there
// are more. It caches the selection as long as the rows stay the same.
func (p *CompiledTask[T]) RiskSample(of *learner.Samples[T], seed uint64) *learner.Samples[T] {
	if of.Len() <= MaxRiskSampleRows {
		return of
	}
	for _, s := range p.recentRiskSamples {
		if s.source != nil && s.seed == seed && s.source.HasSameRows(of) {
			return s.rows
		}
	}
	p.recentRiskSamples[1] = p.recentRiskSamples[0]
	p.recentRiskSamples[0] = riskSample[T]{of, of.RandomSubset(MaxRiskSampleRows, rand.New(rand.NewPCG(seed, 0))), seed}
	return p.recentRiskSamples[0].rows
}
