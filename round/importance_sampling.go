package round

import (
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/fedmesh/fedmesh/round/rule"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Bounds of importance sampling. The odds K·q_k of an agent are its draw probability q_k, divided by the probability
// 1/K of uniform sampling among K agents. Norms of updates are given in multiples of the median norm.
const (
	leastOdds        = 0.5
	mostOdds         = 2
	maxNormInMedians = 3
)

// ImportanceOdds writes the odds K·q_k of each of K agents to dst, where q_k is the probability that one draw selects
// agent k. The probability q_k is proportional to the norm ‖v_k‖ of the agent's last update, with two bounds: norms are
// capped at three times the median, and the odds lie between ½ and 2. An unknown norm of 0 is replaced by the lower
// median; if no norm is known, all odds are 1. The odds sum to K.
//
// For draws with replacement, the weighted mean is an unbiased estimate of the mean over all agents, whatever the odds:
// E Σ n_k v_k/(K q_k) / L = Σ v_k / K, where n_k is the number of draws of agent k and L is the number of all draws.
// The variance is minimal if the odds are proportional to the norms.
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
		dst[k] *= float64(len(dst)) / total // Correct the rounding error, so that the odds sum to their number K.
	}
	return dst
}

func clampedImportanceOdds(scale, x float64) float64 { return min(max(scale*x, leastOdds), mostOdds) }

// importanceOddsScale returns the factor by which norms, in multiples of the median, are multiplied to obtain odds with
// the mean 1. It finds the factor by bisection: the mean of the bounded odds increases with the factor, from ½ to at
// least 1.
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

// DrawByImportance draws l of the indices 0 … K−1 with replacement. Each draw selects index k with probability
// odds[k]/K. The draw counts of the results sum to l.
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

// lastUpdateNorms returns the norm of each agent's last update, or nil if agents are not sampled by importance.
func (c *CoordinatorMachine) lastUpdateNorms(agents []wire.AgentID) (all []float64) {
	if c.cfg.Sampling == spec.SamplingImportance {
		for _, a := range agents {
			all = append(all, c.roster.memberByAgent[a].lastUpdateNorm)
		}
	}
	return all
}

// rememberUpdateNorm stores the norm of an agent's last update in the roster if agents are sampled by importance. The
// stored norm is lost at a restart.
func (c *CoordinatorMachine) rememberUpdateNorm(p *participantProgress) {
	m := c.roster.memberByAgent[p.Agent]
	if m != nil && c.cfg.Sampling == spec.SamplingImportance && c.record.Plan.Kind == wire.KindTraining {
		m.lastUpdateNorm = c.record.Plan.NormPerStepWeight(c.cfg.WeightPlacement, Contribution{Weight: p.Weight,
			UpdateMetadata: rule.UpdateMetadata{Norm: p.UpdateNorm}})
	}
}
