package rule_test

import (
	"cmp"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/round/rule"
)

// points contains the elements of the updates in a set, in id order, each repeated as many times as its agent was
// drawn. It also contains the rule's state before the aggregation.
type points struct {
	v       [][]float64
	weights []float64 // weight of each draw: the update's weight divided by the agent's number of draws
	state   []float64
}

func pointsOf(set *rule.UpdateSet[float64]) points {
	order := make([]int, len(set.Updates))
	for k := range order {
		order[k] = k
	}
	slices.SortFunc(order, func(i, j int) int { return set.Updates[i].AgentIDRank - set.Updates[j].AgentIDRank })
	var p points
	for _, k := range order {
		u := &set.Updates[k]
		for range u.DrawCount {
			p.v = append(p.v, set.UpdateReader.(rule.InMemoryUpdates[float64])[k])
			p.weights = append(p.weights, u.ContributionFactor/float64(u.DrawCount))
		}
	}
	if len(set.RuleState) > 0 {
		p.state = slices.Clone(set.RuleState[0])
	}
	return p
}

// oracles contains an independent implementation of each rule, according to docs/ALGORITHMS.md.
var oracles = map[string]func(c rule.Config, p points) []float64{
	rule.Mean:   func(_ rule.Config, p points) []float64 { return byCoordinate(p, average) },
	rule.Median: func(_ rule.Config, p points) []float64 { return byCoordinate(p, middle) },
	rule.TrimmedMean: func(c rule.Config, p points) []float64 {
		return byCoordinate(p, func(values []float64) float64 {
			slices.Sort(values)
			cut := int(math.Floor(c.TrimShare * float64(len(values))))
			return average(values[cut : len(values)-cut])
		})
	},
	rule.Krum: func(c rule.Config, p points) []float64 { return p.v[nearest(c, p)[0]] },
	rule.MultiKrum: func(c rule.Config, p points) []float64 {
		var kept points
		for _, k := range nearest(c, p)[:c.AveragedUpdates] {
			kept.v = append(kept.v, p.v[k])
		}
		return byCoordinate(kept, average)
	},
	rule.GeometricMedian: func(_ rule.Config, p points) []float64 {
		z := make([]float64, len(p.v[0]))
		for range 4 {
			sum, next := 0.0, make([]float64, len(z))
			for k, v := range p.v {
				beta := p.weights[k] / max(1e-6, distance(v, z))
				sum += beta
				for j := range v {
					next[j] += beta * v[j]
				}
			}
			for j := range z {
				z[j] = next[j] / sum
			}
		}
		return z
	},
	rule.CenteredClipping: func(c rule.Config, p points) []float64 {
		next := slices.Clone(p.state)
		for k, v := range p.v {
			part := min(1, c.ClippingRadius/distance(v, p.state)) * p.weights[k] / float64(len(p.v))
			for j := range v {
				next[j] += part * (v[j] - p.state[j])
			}
		}
		return next
	},
}

func byCoordinate(p points, of func(values []float64) float64) (d []float64) {
	for j := range p.v[0] {
		var values []float64
		for _, v := range p.v {
			values = append(values, v[j])
		}
		d = append(d, of(values))
	}
	return d
}

func average(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

func middle(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return (values[n/2-1] + values[n/2]) / 2
}

func distance(a, b []float64) float64 {
	sum := 0.0
	for j := range a {
		sum += (a[j] - b[j]) * (a[j] - b[j])
	}
	return math.Sqrt(sum)
}

// nearest returns the draws in ascending order of Krum's score (the sum of squared distances to the nearest draws).
// Draws with equal scores are sorted by id.
func nearest(c rule.Config, p points) []int {
	scores, order := make([]float64, len(p.v)), make([]int, len(p.v))
	for k, v := range p.v {
		order[k] = k
		var all []float64
		for j, w := range p.v {
			if j != k {
				all = append(all, distance(v, w)*distance(v, w))
			}
		}
		slices.Sort(all)
		for _, x := range all[:len(p.v)-c.MaxByzantineUpdates-2] {
			scores[k] += x
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		// Treat nearly equal scores as equal, since the rule may add the same numbers in a different order.
		if math.Abs(scores[i]-scores[j]) < 1e-9*scores[i] {
			return 0
		}
		return cmp.Compare(scores[i], scores[j])
	})
	return order
}
