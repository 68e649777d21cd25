package reproduce

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/fedmesh/fedmesh/lab/plot"
	"github.com/fedmesh/fedmesh/lab/theory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// samplingExperiment measures the variance of the mean of L vectors that are sampled from K random vectors (Lemma 5.1
// in chapter 5 of Vlaski and Sayed). samplingExperiment uses every L from 1 to K. The coordinator's own sampling code
// selects the vectors.
type samplingExperiment struct {
	Means     [][]float64 `json:"means"`     // mean ā_k of each random vector
	Variances []float64   `json:"variances"` // variance of each vector, summed over its coordinates
	Trials    int         `json:"trials"`    // number of trials for each sample size L
}

// defaultSampling returns the experiment `sampling` with its default settings.
func defaultSampling() *samplingExperiment {
	s := &samplingExperiment{Trials: 200_000}
	for k := range 8 {
		s.Means = append(s.Means, []float64{math.Cos(float64(k + 1)), 0.5 * float64(k), float64(1 - 2*(k%2))})
		s.Variances = append(s.Variances, 0.2*float64(1+k))
	}
	return s
}

// About implements Experiment.
func (s *samplingExperiment) About() About {
	return About{"sampling", "The mean of L of K random vectors, drawn without replacement, has the variance of " +
		"Lemma 5.1. The variance due to differences between agents vanishes as L approaches K.", "ch5 Lemma 5.1 (5.33)"}
}

// samplingScheme is a sampling method with its predicted variance.
type samplingScheme struct {
	key, what   string
	sample      func([]wire.AgentID, int, *rand.Rand) []round.DrawnAgent
	answersOnce bool // true if an agent that is drawn twice responds once with double weight
	variance    func(int) float64
}

// Run implements Experiment. It measures sampling without replacement and with replacement, for every sample size L
// from 1 to K. With replacement, an agent may be drawn repeatedly. Such an agent sends either one update per draw (keys
// with_L…) or, as in the FedDec paper, one update in total (keys with_repeated_L…).
func (s *samplingExperiment) Run(ctx context.Context, o Options) (*Report, error) {
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("sampling: %w", err)
	}
	k := len(s.Means)
	m := theory.Mixture{Means: s.Means, Variances: s.Variances}
	drawings := []samplingScheme{
		{"without_L", "without replacement", round.SampleAgentsWithoutReplacement, true, m.WithoutReplacement},
		{"with_L", "with replacement", round.SampleAgentsWithReplacement, false, m.WithReplacement},
		{"with_repeated_L", "with replacement, one answer per agent", round.SampleAgentsWithReplacement, true,
			m.WithRepetition},
	}
	measured := make([]estimate, len(drawings)*k)
	err := inParallel(ctx, len(measured), func(i int) {
		rng := rand.New(rand.NewPCG(o.Seed, uint64(i)))
		measured[i] = s.measure(drawings[i/k], i%k+1, o.fullOrQuickCount(s.Trials, 20_000), rng)
	})
	if err != nil {
		return nil, err
	}
	r := &Report{About: s.About()}
	figure := plot.Figure{Title: "Variance of the mean of L of K; dashed: theory", X: plot.Axis{Label: "L"},
		Y: plot.Axis{Label: "E‖â − ā‖²", Log: true}}
	for d, way := range drawings {
		points := plot.Curve{Name: way.what, MarksOnly: true}
		line := plot.Curve{IsPrediction: true}
		for l := 1; l <= k; l++ {
			e, predicted := measured[d*k+l-1], way.variance(l)
			r.compare(fmt.Sprintf("%s%d", way.key, l), fmt.Sprintf("L = %d, %s", l, way.what), e, predicted, 0.05)
			e.appendTo(&points, float64(l))
			line.X, line.Y = append(line.X, float64(l)), append(line.Y, predicted)
		}
		figure.Curves = append(figure.Curves, points, line)
	}
	r.figure("sampling", figure)
	return r, nil
}

func (s *samplingExperiment) validate() error {
	switch k := len(s.Means); {
	case k == 0 || len(s.Variances) != k || s.Trials < 2:
		return fmt.Errorf("%d means, %d variances, %d trials: want at least one mean, the same number of variances "+
			"and at least two trials", k, len(s.Variances), s.Trials)
	case len(s.Means[0]) == 0 ||
		slices.ContainsFunc(s.Means, func(m []float64) bool { return len(m) != len(s.Means[0]) }):
		return errors.New("means: want non-empty vectors of equal length")
	case slices.Min(s.Variances) < 0:
		return fmt.Errorf("variances %v: want 0 or more", s.Variances)
	}
	return nil
}

// measure returns the mean squared deviation E‖â − ā‖² of the sampled mean â from the true mean ā.
func (s *samplingExperiment) measure(way samplingScheme, l, trials int, rng *rand.Rand) estimate {
	agents := make([]wire.AgentID, len(s.Means))
	centre := make([]float64, len(s.Means[0]))
	for k, mean := range s.Means {
		agents[k] = wire.AgentID(fmt.Sprintf("%06d", k))
		for j, v := range mean {
			centre[j] += v / float64(len(s.Means))
		}
	}
	index := make(map[wire.AgentID]int, len(agents))
	for k, id := range agents {
		index[id] = k
	}
	miss := make([]float64, len(centre))
	sum, squares := 0.0, 0.0
	for range trials {
		for j, v := range centre {
			miss[j] = -v
		}
		for _, d := range way.sample(agents, l, rng) {
			answers, share := d.DrawCount, 1/float64(l)
			if way.answersOnce {
				answers, share = 1, float64(d.DrawCount)/float64(l)
			}
			for range answers {
				s.add(miss, index[d.Agent], share, rng)
			}
		}
		square := 0.0
		for _, v := range miss {
			square += v * v
		}
		sum, squares = sum+square, squares+square*square
	}
	n := float64(trials)
	mean := sum / n
	return estimate{mean, normal95 * math.Sqrt(max(0, squares/n-mean*mean)/n)}
}

// normal95 is the 97.5 % quantile of the normal distribution.
const normal95 = 1.959964

// add draws a random vector of agent k and adds share times this vector to dst.
func (s *samplingExperiment) add(dst []float64, k int, share float64, rng *rand.Rand) {
	deviation := math.Sqrt(s.Variances[k] / float64(len(dst)))
	for j, mean := range s.Means[k] {
		dst[j] += share * (mean + deviation*rng.NormFloat64())
	}
}
