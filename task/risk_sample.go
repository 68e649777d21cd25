package task

import (
	"math/rand/v2"

	"github.com/fedmesh/fedmesh/learner"
)

// MaxRiskSampleRows is how many rows the risks that an agent reports are of at most. Of more rows it draws as many, one
// of each MaxRiskSampleRows-th part: the mean over them is off by some σ/64, where σ is the standard deviation of the
// rows' risks, and two passes over all rows a round would take longer than the local steps.
const MaxRiskSampleRows = 4096

// riskSample is the rows on which risks are reported.
type riskSample[T learner.Float] struct {
	source, rows *learner.Samples[T]
	seed         uint64
}

// RiskSample returns the rows of some on which risks are reported: all of them, or MaxRiskSampleRows that the seed
// draws. They are read once, and used again while the samples stay the same.
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
