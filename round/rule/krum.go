package rule

import (
	"sort"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Krum is the name of the rule that selects one of n drawn updates, up to f of which are malicious (Blanchard et al.
// 2017). It selects the update with the smallest sum of squared distances to its n−f−2 nearest draws. Of equal sums it
// selects the lower agent id. An agent that was drawn twice counts twice, and the weights p_k of agents have no effect.
// MultiKrum is the name of the rule that returns the mean of the m updates with the smallest sums.
const (
	Krum      = "krum"
	MultiKrum = "multi_krum"
)

type krum[T wire.Float] struct {
	weightedRule[T]
	name                                           string
	minDraws, maxByzantineUpdates, averagedUpdates int
}

func newKrum[T wire.Float](c Config) Rule[T] {
	return &krum[T]{name: Krum, minDraws: minDrawsOfKrum(c), maxByzantineUpdates: c.MaxByzantineUpdates,
		averagedUpdates: 1}
}

func newMultiKrum[T wire.Float](c Config) Rule[T] {
	return &krum[T]{name: MultiKrum, minDraws: minDrawsOfMultiKrum(c), maxByzantineUpdates: c.MaxByzantineUpdates,
		averagedUpdates: c.AveragedUpdates}
}

func minDrawsOfKrum(c Config) int      { return 2*c.MaxByzantineUpdates + 3 }
func minDrawsOfMultiKrum(c Config) int { return max(minDrawsOfKrum(c), c.AveragedUpdates) }

func checkMaxByzantineUpdates(c Config, k *spec.ProblemList) {
	if c.Rule != Krum && c.Rule != MultiKrum {
		k.Require(c.MaxByzantineUpdates == 0, "byzantine", "is %d, but only the rules %s and %s use this key: remove "+
			"it",
			c.MaxByzantineUpdates, Krum,
			MultiKrum)
		return
	}
	k.Require(c.MaxByzantineUpdates >= 0 && c.MaxByzantineUpdates <= maxConfiguredUpdates, "byzantine",
		"must be between 0 and %d, but is %d", maxConfiguredUpdates,
		c.MaxByzantineUpdates)
}

// maxConfiguredUpdates is the maximum of each configured number of updates. It ensures that the sums of these numbers
// cannot overflow.
const maxConfiguredUpdates = 1 << 20

func checkAveragedUpdates(c Config, k *spec.ProblemList) {
	if c.Rule != MultiKrum {
		k.Require(c.AveragedUpdates == 0, "keep", "is %d, but only the rule %s uses this key: remove it",
			c.AveragedUpdates, MultiKrum)
		return
	}
	k.Require(c.AveragedUpdates >= 1 && c.AveragedUpdates <= maxConfiguredUpdates, "keep",
		"must be between 1 and %d, but is %d",
		maxConfiguredUpdates,
		c.AveragedUpdates)
}

func (*krum[T]) PassCount() int { return 2 }

// AssessUpdates implements Rule. In addition to a block of columns, it stores the distances between all pairs of
// updates.
func (r *krum[T]) AssessUpdates(s *UpdateSet[T]) (UpdateAssessment, error) {
	n := s.TotalDrawCount()
	if err := requireDraws(r.name, n, r.minDraws); err != nil {
		return UpdateAssessment{}, err
	}
	apart, err := squaredPairDistances(s)
	if err != nil {
		return UpdateAssessment{}, err
	}
	scores, order, all := make([]float64, len(s.Updates)), make([]int, len(s.Updates)), make([]float64, 0, n)
	for k := range s.Updates {
		scores[k], order[k] = krumScore(all[:0], s, apart, k, n-r.maxByzantineUpdates-2), k
	}
	sort.SliceStable(order, func(i, j int) bool {
		a, b := order[i], order[j]
		return scores[a] < scores[b] || scores[a] == scores[b] && s.Updates[a].AgentIDRank < s.Updates[b].AgentIDRank
	})
	r.resetUpdateFactors(s, float64(r.averagedUpdates))
	left := r.averagedUpdates
	for _, k := range order {
		taken := min(left, s.Updates[k].DrawCount)
		r.updateFactors[k] = float64(taken)
		left -= taken
	}
	var w UpdateAssessment
	for k, f := range r.updateFactors {
		if f == 0 {
			w.ExcludedIndices = append(w.ExcludedIndices, k)
		}
	}
	return w, nil
}

// krumScore returns the sum of the squared distances from update k to its nearest draws, including further draws of
// update k. The parameter all is a buffer for the distances.
func krumScore[T wire.Float](all []float64, s *UpdateSet[T], apart [][]float64, k, nearest int) float64 {
	for j := range s.Updates {
		times, square := s.Updates[j].DrawCount, 0.0
		switch {
		case j == k:
			times--
		case j < k:
			square = apart[k][j]
		default:
			square = apart[j][k]
		}
		for range times {
			all = append(all, square)
		}
	}
	sort.Float64s(all)
	sum := 0.0
	for _, x := range all[:nearest] {
		sum += x
	}
	return sum
}

// distanceTileElements is the number of elements of each vector that are compared at a time. These elements must fit
// into the CPU cache.
const distanceTileElements = 1 << 15

// squaredPairDistances returns the squared distance ‖v_k − v_j‖² of each pair of clipped updates v_k and v_j at the
// indices [k][j], for j < k. It adds the squares in column order.
func squaredPairDistances[T wire.Float](s *UpdateSet[T]) ([][]float64, error) {
	n := len(s.Updates)
	apart := make([][]float64, n)
	for k := range apart {
		apart[k] = make([]float64, k)
	}
	width := max(distanceTileElements/n, 16)
	tile, room := make([][]float64, n), make([]float64, n*width)
	err := forEachColumnBlock(s, 0, s.Len(), func(_ int, rows [][]T) {
		for from := 0; from < len(rows[0]); from += width {
			for k, row := range rows {
				row = row[from:min(from+width, len(row))]
				tile[k] = room[k*width:][:len(row)]
				part := s.Updates[k].clipFactor()
				for j, x := range row {
					tile[k][j] = float64(part * float64(x))
				}
			}
			for k := range tile {
				addSquaredPairDistances(apart[k], tile[k], tile)
			}
		}
	})
	return apart, err
}

// addSquaredPairDistances adds the squared distances between v and the first len(sums) vectors of others to sums. It
// computes four independent sums at a time, which is 3 times as fast as one sum.
func addSquaredPairDistances(sums, v []float64, others [][]float64) {
	j := 0
	for ; j+4 <= len(sums); j += 4 {
		a, b, c, d := others[j][:len(v)], others[j+1][:len(v)], others[j+2][:len(v)], others[j+3][:len(v)]
		w, x, y, z := sums[j], sums[j+1], sums[j+2], sums[j+3]
		for i, e := range v {
			p, q, r, t := e-a[i], e-b[i], e-c[i], e-d[i]
			w += float64(p * p)
			x += float64(q * q)
			y += float64(r * r)
			z += float64(t * t)
		}
		sums[j], sums[j+1], sums[j+2], sums[j+3] = w, x, y, z
	}
	for ; j < len(sums); j++ {
		sum := sums[j]
		for i, e := range v {
			far := e - others[j][i]
			sum += float64(far * far)
		}
		sums[j] = sum
	}
}
