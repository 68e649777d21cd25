package round

import (
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Bounds of importance sampling: of K·q_k, and of the lengths that count, in medians.
const (
	leastOdds        = 0.5
	mostOdds         = 2
	maxNormInMedians = 3
)

// ImportanceOdds writes K·q_k to dst, where q_k is the probability of agent k in each draw: in proportion to ‖v_k‖ of
// its last update, at most three times the median, as long as ½ ≤ K·q_k ≤ 2. A length of 0 is not known, and counts as
// the median; of two middle ones that is the lower. Where no length is known all odds are 1. Their sum is K.
//
// With replacement, E Σ n_k v_k/(K q_k) / L = Σ v_k / K whatever the odds, and its variance is the least where they are
// in proportion to the lengths.
func ImportanceOdds(dst, lengths []float64) []float64 {
	dst = dst[:0]
	var known []float64
	for _, x := range lengths {
		if x > 0 {
			known = append(known, x)
		}
	}
	if len(known) == 0 {
		for range lengths {
			dst = append(dst, 1)
		}
		return dst
	}
	slices.Sort(known)
	median := known[(len(known)-1)/2]
	for _, x := range lengths {
		if x <= 0 {
			x = median
		}
		dst = append(dst, min(x/median, maxNormInMedians))
	}
	scale := importanceOddsScale(dst)
	for k, x := range dst {
		dst[k] = clampedImportanceOdds(scale, x)
	}
	total := 0.0
	for _, o := range dst {
		total += o
	}
	for k := range dst {
		dst[k] *= float64(len(dst)) / total // which is 1 but for the rounding
	}
	return dst
}

func clampedImportanceOdds(scale, x float64) float64 { return min(max(scale*x, leastOdds), mostOdds) }

// importanceOddsScale returns the factor with which the odds of lengths, in medians, have the mean 1: at 0 it is ½, it
// does not fall, and at the upper end those of all that are not shorter than the median, half of them at least, are 2.
func importanceOddsScale(lengths []float64) float64 {
	low, high := 0.0, float64(mostOdds)
	for range 60 {
		middle, total := (low+high)/2, 0.0
		for _, x := range lengths {
			total += clampedImportanceOdds(middle, x)
		}
		if total < float64(len(lengths)) {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// DrawByImportance draws l of the places with replacement, place k with the probability odds[k]/K in each draw. The
// Times add up to l, and each place has its odds.
func (s *IndexSampler) DrawByImportance(odds []float64, l int, rng *rand.Rand) []DrawnIndex {
	s.cumulativeOdds = s.cumulativeOdds[:0]
	total := 0.0
	for _, o := range odds {
		total += o
		s.cumulativeOdds = append(s.cumulativeOdds, total)
	}
	s.drawnIndices = s.drawnIndices[:0]
	for range l {
		at := rng.Float64() * total
		k := sort.Search(len(odds)-1, func(k int) bool { return at < s.cumulativeOdds[k] })
		s.drawnIndices = append(s.drawnIndices, k)
	}
	places := s.countDrawnIndices(len(odds))
	for i := range places {
		places[i].Odds = odds[places[i].Index]
	}
	return places
}

// lastUpdateNorms are those of the last updates of agents; nil where no draw goes by them.
func (c *CoordinatorMachine) lastUpdateNorms(agents []wire.AgentID) (all []float64) {
	if c.cfg.Sampling == spec.SamplingImportance {
		for _, a := range agents {
			all = append(all, c.roster.memberByAgent[a].lastUpdateNorm)
		}
	}
	return all
}

// rememberUpdateNorm keeps the length of an agent's last update where draws go by it, for as long as the process
// lives and knows the agent.
func (c *CoordinatorMachine) rememberUpdateNorm(p *participantProgress) {
	m := c.roster.memberByAgent[p.Agent]
	if m != nil && c.cfg.Sampling == spec.SamplingImportance && c.record.Plan.Kind == wire.KindTraining {
		m.lastUpdateNorm = c.record.Plan.NormPerStepWeight(c.cfg.WeightPlacement, Contribution{Weight: p.Weight,
			UpdateMetadata: rule.UpdateMetadata{Norm: p.UpdateNorm}})
	}
}
