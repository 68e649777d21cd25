package round_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

var samplings = map[string]func([]wire.AgentID, int, *rand.Rand) []round.DrawnAgent{
	"without": round.SampleAgentsWithoutReplacement,
	"with":    round.SampleAgentsWithReplacement,
}

func agentsOf(k int) []wire.AgentID {
	all := make([]wire.AgentID, k)
	for i := range all {
		all[i] = wire.AgentID(fmt.Sprintf("agent-%02d", i))
	}
	return all
}

// ofRound returns the random source of round r for the seed 7. Tests use it because the draws of successive rounds must
// be independent.
func ofRound(r int) *rand.Rand { return rand.New(rand.NewPCG(7, uint64(r))) }

// TestSamplingUniform checks by Pearson's chi-squared test that each of K agents is drawn in the share L/K of many
// rounds with L draws.
func TestSamplingUniform(t *testing.T) {
	const k, rounds = 12, 20000
	agents := agentsOf(k)
	for what, sample := range samplings {
		for _, l := range []int{1, 5, 11} {
			counts := map[wire.AgentID]int{}
			for r := range rounds {
				for _, d := range sample(agents, l, ofRound(r)) {
					counts[d.Agent] += d.DrawCount
				}
			}
			expected, variance := rounds*float64(l)/k, rounds*float64(l)/k
			if what == "without" {
				// Without replacement, the counts of one round are 0 or 1 and sum to L. The covariance of these counts
				// is the covariance of multinomial counts, multiplied by (1−L/K)·K/(K−1).
				variance *= (1 - float64(l)/k) * k / (k - 1)
			}
			chi2 := 0.0
			for _, a := range agents {
				chi2 += (float64(counts[a]) - expected) * (float64(counts[a]) - expected) / variance
			}
			if p := (distuv.ChiSquared{K: k - 1}).Survival(chi2); p < 1e-3 {
				t.Errorf("%s replacement, L = %d: χ² = %.1f with %d degrees of freedom, p = %.2g", what, l, chi2, k-1,
					p)
			}
			// Each agent must be drawn with the probability L/K (ch5, equation (5.8)), within 5 standard errors.
			for _, a := range agents {
				if got := float64(counts[a]) / rounds; math.Abs(got-float64(l)/k) > 5*math.Sqrt(variance)/rounds {
					t.Errorf("%s replacement, L = %d: %s was drawn %.4f times a round, want %.4f", what, l, a, got,
						float64(l)/k)
				}
			}
		}
	}
}

// TestSamplingPairs checks that each pair of agents is drawn together with the probability L(L−1)/(K(K−1)), for L draws
// from K agents.
func TestSamplingPairs(t *testing.T) {
	const k, l, rounds = 8, 3, 40000
	agents := agentsOf(k)
	pairs := map[[2]wire.AgentID]int{}
	for r := range rounds {
		draws := round.SampleAgentsWithoutReplacement(agents, l, ofRound(r))
		for i := range draws {
			for j := range i {
				pairs[[2]wire.AgentID{draws[j].Agent, draws[i].Agent}]++
			}
		}
	}
	p := float64(l*(l-1)) / (k * (k - 1))
	if len(pairs) != k*(k-1)/2 {
		t.Fatalf("%d pairs were drawn, want %d", len(pairs), k*(k-1)/2)
	}
	for pair, n := range pairs {
		if got := float64(n) / rounds; math.Abs(got-p) > 5*math.Sqrt(p*(1-p)/rounds) {
			t.Errorf("%v were drawn together in %.4f of the rounds, want %.4f", pair, got, p)
		}
	}
}

// TestSamplingForm checks that the sampled agents are in id order, have the requested number, and do not depend on the
// order of the given agents.
func TestSamplingForm(t *testing.T) {
	agents := agentsOf(9)
	shuffled := slices.Clone(agents)
	slices.Reverse(shuffled)
	shuffled[0], shuffled[4] = shuffled[4], shuffled[0]
	before := slices.Clone(shuffled)
	for what, sample := range samplings {
		for l := range 12 {
			draws := sample(agents, l, ofRound(l))
			if other := sample(shuffled, l, ofRound(l)); !slices.Equal(draws, other) {
				t.Errorf("%s replacement, L = %d: the input's order changes the draws from %v to %v", what, l, draws,
					other)
			}
			total := 0
			for i, d := range draws {
				total += d.DrawCount
				if d.DrawCount < 1 || what == "without" && d.DrawCount != 1 || i > 0 && draws[i-1].Agent >= d.Agent {
					t.Errorf("%s replacement, L = %d: %v", what, l, draws)
				}
			}
			want := l
			if what == "without" {
				want = min(l, len(agents))
			}
			if total != want {
				t.Errorf("%s replacement, L = %d: %d draws, want %d", what, l, total, want)
			}
		}
	}
	if !slices.Equal(shuffled, before) {
		t.Error("sampling changed its input")
	}
	if draws := round.SampleAgentsWithoutReplacement(nil, 3, ofRound(0)); len(draws) != 0 {
		t.Errorf("drew %v from nobody", draws)
	}
}

// TestSamplingVariance checks the variance of the mean of L sampled variables against the prediction in ch5, Lemma 5.1,
// equation (5.33), within five Monte Carlo standard errors.
func TestSamplingVariance(t *testing.T) {
	const k, trials = 8, 20000
	agents, mean, sigma2 := agentsOf(k), [k]float64{}, [k]float64{}
	index := map[wire.AgentID]int{}
	centre, sumSigma2, spread := 0.0, 0.0, 0.0
	for i, a := range agents {
		index[a] = i
		mean[i], sigma2[i] = 3*math.Cos(float64(i+1))+0.5*float64(i), 0.2*float64(1+i)
		centre += mean[i] / k
		sumSigma2 += sigma2[i]
	}
	for i := range mean {
		spread += (mean[i] - centre) * (mean[i] - centre)
	}
	for l := 1; l <= k; l++ {
		noise := rand.New(rand.NewPCG(11, uint64(l)))
		sum, sum2 := 0.0, 0.0
		for trial := range trials {
			estimate := 0.0
			for _, d := range round.SampleAgentsWithoutReplacement(agents, l, ofRound(trial)) {
				i := index[d.Agent]
				estimate += (mean[i] + math.Sqrt(sigma2[i])*noise.NormFloat64()) / float64(l)
			}
			e := (estimate - centre) * (estimate - centre)
			sum, sum2 = sum+e, sum2+e*e
		}
		got := sum / trials
		standardError := math.Sqrt((sum2/trials - got*got) / trials)
		want := sumSigma2/float64(k*l) + spread*float64(k-l)/float64(k-1)/float64(k*l)
		if math.Abs(got-want) > 5*standardError {
			t.Errorf("L = %d: variance %.4f ± %.4f, (5.33) says %.4f", l, got, standardError, want)
		}
	}
}
