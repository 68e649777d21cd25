package world

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/round/rule"
)

// aggregate returns the aggregate of a round's updates before the server scales it. It returns false if the aggregation
// rule needs the previous aggregate and that aggregate is unknown.
func (c *invariantChecker) aggregate(by *rule.Config, at version, set []taken, n int) (d []float64, ok bool) {
	switch by.Rule {
	case rule.Mean:
		return mean(set, n), true
	case rule.GeometricMedian:
		return geometricMedian(set, n), true
	case rule.CenteredClipping:
		last, known := c.aggregates[version{at.run, at.version - 1}]
		switch {
		case at.version == 1:
			last = make([]float64, n)
		case !known:
			return nil, false
		}
		d = centered(set, last, by.ClippingRadius)
		c.aggregates[at] = slices.Clone(d)
		return d, true
	}
	var draws [][]float64
	for _, u := range set { // the updates are sorted by agent id
		draws = append(draws, slices.Repeat([][]float64{u.v}, u.times)...)
	}
	switch by.Rule {
	case rule.Median:
		return columns(draws, func(x []float64) float64 { return average(x[(len(x)-1)/2 : len(x)/2+1]) }), true
	case rule.TrimmedMean:
		cut := int(math.Floor(by.TrimShare * float64(len(draws))))
		return columns(draws, func(x []float64) float64 { return average(x[cut : len(x)-cut]) }), true
	case rule.Krum:
		return nearest(draws, by.MaxByzantineUpdates)[0], true
	case rule.MultiKrum:
		return columns(nearest(draws, by.MaxByzantineUpdates)[:by.AveragedUpdates], average), true
	}
	panic(fmt.Sprintf("world: no reference implementation of the rule %s", by.Rule))
}

// mean returns the weighted sum of all updates, divided by the total number of draws. The weights are the factors of
// the updates.
func mean(set []taken, n int) []float64 {
	d, draws := make([]float64, n), 0
	for _, u := range set {
		draws += u.times
		for j, x := range u.v {
			d[j] += u.factor * x
		}
	}
	for j := range d {
		d[j] /= float64(draws)
	}
	return d
}

func geometricMedian(set []taken, n int) []float64 {
	z := make([]float64, n)
	for range 4 {
		next, sum := make([]float64, n), 0.0
		for _, u := range set {
			beta := u.factor / max(1e-6, apart(u.v, z))
			sum += beta
			for j, x := range u.v {
				next[j] += beta * x
			}
		}
		for j := range z {
			z[j] = next[j] / sum
		}
	}
	return z
}

func centered(set []taken, last []float64, radius float64) []float64 {
	d, draws := slices.Clone(last), 0
	for _, u := range set {
		draws += u.times
	}
	for _, u := range set {
		part := u.factor / float64(draws) * min(1, radius/apart(u.v, last))
		for j, x := range u.v {
			d[j] += part * (x - last[j])
		}
	}
	return d
}

// columns returns a vector that contains, for each coordinate, the result of the function of. The function receives the
// sorted values of the coordinate.
func columns(draws [][]float64, of func(sorted []float64) float64) (d []float64) {
	for j := range draws[0] {
		var values []float64
		for _, v := range draws {
			values = append(values, v[j])
		}
		slices.Sort(values)
		d = append(d, of(values))
	}
	return d
}

func average(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v / float64(len(x))
	}
	return sum
}

// nearest sorts vectors as the rule Krum requires, for n vectors and f dishonest agents. The sort key is the sum of the
// squared distances to the n−f−2 nearest neighbours. Vectors with equal sums keep the order of the agent ids.
func nearest(draws [][]float64, liars int) [][]float64 {
	scores, order := make([]float64, len(draws)), make([]int, len(draws))
	for k, v := range draws {
		order[k] = k
		var all []float64
		for j, w := range draws {
			if j != k {
				all = append(all, apart(v, w)*apart(v, w))
			}
		}
		slices.Sort(all)
		for _, x := range all[:len(draws)-liars-2] {
			scores[k] += x
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(scores[i], scores[j]) })
	sorted := make([][]float64, len(draws))
	for k, i := range order {
		sorted[k] = draws[i]
	}
	return sorted
}

func apart(a, b []float64) float64 {
	far := make([]float64, len(a))
	for j := range a {
		far[j] = a[j] - b[j]
	}
	return norm(far)
}

func norm(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x * x
	}
	return math.Sqrt(sum)
}
