package round_test

import (
	"math"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/round"
)

// TestOdds checks that the odds of importance sampling are proportional to the norms (capped at three times the median
// norm), lie within their bounds, and sum to the number K of agents.
func TestOdds(t *testing.T) {
	for name, c := range map[string]struct{ lengths, want []float64 }{
		"none is known":            {[]float64{0, 0, 0}, []float64{1, 1, 1}},
		"all alike":                {[]float64{7, 7, 7, 7}, []float64{1, 1, 1, 1}},
		"in proportion":            {[]float64{2, 3, 4, 3}, []float64{2. / 3, 1, 4. / 3, 1}},
		"an unknown is the median": {[]float64{2, 0, 4, 3}, []float64{2. / 3, 1, 4. / 3, 1}},
		"the lower of two middle":  {[]float64{2, 0, 4}, []float64{0.75, 0.75, 1.5}},
		"at most two": {[]float64{1, 1, 1, 1, 1, 1, 1, 3},
			append(slices.Repeat([]float64{6. / 7}, 7), 2)},
		"at least a half":            {[]float64{1, 1, 1, 0.01}, []float64{3.5 / 3, 3.5 / 3, 3.5 / 3, 0.5}},
		"both bounds":                {[]float64{1, 1, 1, 1, 0.01, 9}, []float64{0.875, 0.875, 0.875, 0.875, 0.5, 2}},
		"three medians, and no more": {[]float64{10, 10, 10, 1e30, 0.5}, []float64{2.5 / 3, 2.5 / 3, 2.5 / 3, 2, 0.5}},
		"one that is hardly there":   {[]float64{1e-300, 5, 5, 5}, []float64{0.5, 3.5 / 3, 3.5 / 3, 3.5 / 3}},
	} {
		got, total := round.ImportanceOdds(nil, c.lengths), 0.0
		for k, o := range got {
			if total += o; math.Abs(o-c.want[k]) > 1e-12 {
				t.Errorf("%s: odds %v, want %v", name, got, c.want)
				break
			}
		}
		if math.Abs(total-float64(len(c.lengths))) > 1e-12 {
			t.Errorf("%s: the odds add up to %v", name, total)
		}
	}
	rng := ofRound(1)
	for range 1000 {
		lengths, total := make([]float64, 1+rng.IntN(50)), 0.0
		for k := range lengths {
			lengths[k] = math.Exp(20 * rng.NormFloat64() * float64(rng.IntN(3)))
		}
		for _, o := range round.ImportanceOdds(nil, lengths) {
			if total += o; o < 0.5-1e-9 || o > 2+1e-9 {
				t.Fatalf("%v has the odds %v", lengths, o)
			}
		}
		if math.Abs(total-float64(len(lengths))) > 1e-9 {
			t.Fatalf("the odds of %v add up to %v", lengths, total)
		}
	}
}

// TestImportanceIsUnbiased checks that the mean of many aggregates with importance sampling equals the mean over all
// agents, within a 99.9 % confidence interval. It also checks how often each agent is drawn, and that the variance is
// smaller than with uniform sampling.
func TestImportanceIsUnbiased(t *testing.T) {
	const agents, l, draws = 12, 4, 40_000
	for name, length := range map[string]func(k int) float64{
		"growing":        func(k int) float64 { return 1 + float64(k) },
		"one long":       func(k int) float64 { return 1 + 5*math.Floor(float64(k)/(agents-1)) },
		"half are short": func(k int) float64 { return 0.1 + 2*float64(k%2) },
	} {
		v, lengths, mean := make([]float64, agents), make([]float64, agents), 0.0
		for k := range v {
			lengths[k] = length(k)
			v[k] = lengths[k]
			mean += v[k] / agents
		}
		var y round.IndexSampler
		var plan round.Plan
		// fold returns the aggregate of the drawn updates, computed as in the rule mean.
		fold := func(places []round.DrawnIndex) (sum float64) {
			for _, p := range places {
				sum += plan.ContributionFactor("step", p.DrawCount, 1, p.Odds) * v[p.Index] / l
			}
			return sum
		}
		odds, rng := round.ImportanceOdds(nil, lengths), ofRound(7)
		counts := make([]float64, agents)
		moments := func(draw func() []round.DrawnIndex, count bool) (m, variance float64) {
			var sum, squares float64
			for range draws {
				places := draw()
				n := 0
				for _, p := range places {
					if n += p.DrawCount; count {
						counts[p.Index] += float64(p.DrawCount)
					}
				}
				if n != l {
					t.Fatalf("%s: %d draws of %d", name, n, l)
				}
				x := fold(places)
				sum, squares = sum+x, squares+x*x
			}
			return sum / draws, squares/draws - sum/draws*sum/draws
		}
		m, variance := moments(func() []round.DrawnIndex { return y.DrawByImportance(odds, l, rng) }, true)
		if within := 3.29 * math.Sqrt(variance/draws); math.Abs(m-mean) > within {
			t.Errorf("%s: the folds' mean is %v, want %v ± %v", name, m, mean, within)
		}
		for k, n := range counts {
			want := odds[k] / agents * l * draws
			if math.Abs(n-want) > 4*math.Sqrt(want) {
				t.Errorf("%s: agent %d is drawn %v times, want %v", name, k, n, want)
			}
		}
		_, alike := moments(func() []round.DrawnIndex { return y.DrawWithReplacement(agents, l, rng) }, false)
		if variance > 0.8*alike {
			t.Errorf("%s: the folds' variance is %v, of draws that are alike %v", name, variance, alike)
		}
		if !slices.IsSorted(odds) && name == "growing" {
			t.Errorf("longer updates have smaller odds: %v", odds)
		}
	}
}
