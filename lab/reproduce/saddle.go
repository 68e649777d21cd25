package reproduce

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/fedmesh/fedmesh/lab/sim"
	"github.com/fedmesh/fedmesh/lab/sim/data"
	"github.com/fedmesh/fedmesh/lab/theory"
	"github.com/fedmesh/fedmesh/spec"
)

// saddleExperiment reproduces section 4 of the paper on second-order guarantees. It trains a bilinear network, whose
// risk has a strict saddle point at 0, by federated averaging with different numbers of participants and initial
// models.
type saddleExperiment struct {
	// mean m_k of agent k's class +1; the inputs of class γ = ±1 are h = γ·m_k + noise N(0, σ²I)
	Means    [][]float64 `json:"means"`
	Variance float64     `json:"variance"` // variance σ² of the inputs
	Hidden   int         `json:"hidden"`
	Ridge    float64     `json:"ridge"` // factor ρ of the ridge penalty

	Participants []int   `json:"participants"` // numbers of participants per round that are simulated
	LocalSteps   int     `json:"local_steps"`  // number of local steps E per round
	BatchSize    int     `json:"batch_size"`
	StepSize     float64 `json:"step_size"`
	ResponseProb float64 `json:"response_prob"` // probability δ that an agent takes a local step
	Start        float64 `json:"start"`         // value of all initial parameters away from the saddle
	// variance per coordinate of the noise that is added to a start at the saddle
	NoiseVar float64 `json:"noise_var"`

	Rounds int `json:"rounds"`
	// first round that the averages of the risk J and of the squared gradient norm ‖∇J‖² include
	Steady int `json:"steady"`
	Runs   int `json:"runs"`
	// Tau limits the instability of the final model relative to the instability at the saddle: λ_min(∇²J) ≥ −τ with τ =
	// −Tau·λ_min(∇²J(0)), where λ_min is the smallest eigenvalue of the Hessian.
	Tau float64 `json:"tau"`
}

// defaultSaddle returns the experiment `saddle` with its default settings.
func defaultSaddle() *saddleExperiment {
	return &saddleExperiment{
		Means: data.SaddleMeans(100, 5), Variance: 1, Hidden: 3, Ridge: 0.1,
		Participants: []int{1, 10, 50, 100}, LocalSteps: 10, BatchSize: 1, StepSize: 0.05, ResponseProb: 0.5,
		Start: 0.01, NoiseVar: 0.01,
		Rounds: 1500, Steady: 1200, Runs: 20, Tau: 0.25,
	}
}

// About implements Experiment.
func (s *saddleExperiment) About() About {
	return About{"saddle", "Federated averaging escapes from a strict saddle and converges to a minimum for any " +
		"share of participating agents.",
		"2nd-order Figs. 1–2"}
}

// saddleStart is an initial model, at the saddle point or away from it, with or without noise.
type saddleStart struct {
	key, what   string
	isOffSaddle bool // true if the initial model differs from the saddle
	noise       bool
}

var saddleStarts = []saddleStart{
	{"ones", "near the saddle", true, false},
	{"zero_v", "at the saddle, with v", false, true},
	{"zero", "at the saddle, without v", false, false},
}

// saddleCase is the simulation of one initial model with one number of participants.
type saddleCase struct {
	saddleStart
	participants int
	*sim.Result
	// first round in which the risk is at most level, for each run; +Inf if there is no such round
	escapeRounds []float64
	lambda       []float64 // smallest eigenvalue of the Hessian ∇²J at the end of each run
}

func (c *saddleCase) name(what string) string {
	return fmt.Sprintf("L%d_%s_%s", c.participants, c.key, what)
}

func (c *saddleCase) String() string { return fmt.Sprintf("L = %d, %s", c.participants, c.what) }

// Run implements Experiment.
func (s *saddleExperiment) Run(ctx context.Context, o Options) (*Report, error) {
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("saddle: %w", err)
	}
	risk := s.theory(saddleStarts[0], s.Participants[0]).Bilinear
	lowest, _ := risk.Minimum()
	r := &Report{About: s.About()}
	r.Values.Set("J_star", lowest)
	var cases []*saddleCase
	for _, start := range saddleStarts {
		for _, l := range s.Participants {
			c, err := s.simulate(ctx, o, start, l, (math.Ln2+lowest)/2)
			if err != nil {
				return nil, fmt.Errorf("saddle: %v: %w", c, err)
			}
			for _, w := range c.Final {
				c.lambda = append(c.lambda, risk.SmallestEigenvalue(w))
			}
			s.judge(r, c, lowest)
			cases = append(cases, c)
		}
	}
	s.plots(r, cases, lowest)
	return r, nil
}

// validate returns an error if a setting is invalid. Settings that the simulation validates are not checked here.
func (s *saddleExperiment) validate() error {
	switch {
	case len(s.Means) == 0 || len(s.Means[0]) == 0 ||
		slices.ContainsFunc(s.Means, func(m []float64) bool { return len(m) != len(s.Means[0]) }):
		return errors.New("means: want one vector per agent, all of equal length")
	case s.Hidden < 1 || s.Variance < 0 || s.Ridge < 0:
		return fmt.Errorf("%d hidden units, variance %v, ridge %v: want at least 1, 0 and 0", s.Hidden, s.Variance,
			s.Ridge)
	case len(s.Participants) == 0 || slices.Min(s.Participants) < 1 || slices.Max(s.Participants) > len(s.Means):
		return fmt.Errorf("participants %v: want numbers from 1 to %d, the number of agents", s.Participants,
			len(s.Means))
	case s.Steady < 0 || s.Steady > s.Rounds:
		return fmt.Errorf("steady from round %d: want one of the %d rounds", s.Steady, s.Rounds)
	case s.Runs < 2:
		return fmt.Errorf("%d runs: want at least 2 to compute an interval", s.Runs)
	}
	flat := s.theory(saddleStarts[0], s.Participants[0])
	if least := flat.SmallestEigenvalue(make([]float64, s.Hidden*(len(s.Means[0])+1))); least >= 0 {
		return fmt.Errorf("the Hessian at 0 has λ_min = %.4g, so 0 is not a strict saddle; want a ridge below ½‖mean "+
			"of m_k‖", least)
	}
	return nil
}

func (s *saddleExperiment) theory(start saddleStart, participants int) theory.Averaged {
	a := theory.Averaged{
		Bilinear:     theory.Bilinear{Hidden: s.Hidden, Means: s.Means, Variance: s.Variance, Ridge: s.Ridge},
		Participants: participants, LocalSteps: s.LocalSteps, BatchSize: s.BatchSize, StepSize: s.StepSize,
		ResponseProb: s.ResponseProb,
	}
	if start.noise {
		a.NoiseVar = s.NoiseVar
	}
	return a
}

// start returns the initial parameters of the case.
func (s *saddleExperiment) start(c saddleStart) []float64 {
	w := make([]float64, s.Hidden*(len(s.Means[0])+1))
	if c.isOffSaddle {
		for j := range w {
			w[j] = s.Start
		}
	}
	return w
}

func (s *saddleExperiment) simulate(ctx context.Context, o Options, start saddleStart, participants int,
	level float64) (*saddleCase, error) {
	c := &saddleCase{saddleStart: start, participants: participants}
	e := sim.Default()
	e.Seed = data.Mix(o.Seed, uint64(slices.Index(saddleStarts, start))<<32|uint64(participants))
	e.Runs, e.Rounds, e.Record = o.fullOrQuickCount(s.Runs, 5), s.Rounds, 1
	if o.Quick {
		e.Record = 10
	}
	if !start.isOffSaddle && !start.noise { // without noise the model stays at the saddle
		e.Runs, e.Record = o.fullOrQuickCount(s.Runs, 2), max(1, s.Rounds-s.Steady)
	}
	e.Participants.Count = participants
	e.LocalSteps, e.BatchSize = sim.Each(float64(s.LocalSteps)), sim.Each(float64(s.BatchSize))
	e.StepSize.Constant = s.StepSize
	e.Response.Probability = sim.Each(s.ResponseProb)
	if start.noise {
		e.GradientNoise = spec.GradientNoise{Law: spec.NoiseGaussian, Variance: s.NoiseVar}
	}
	problem := data.NewClasses[float64](data.Classes{Means: s.Means, Variance: s.Variance, Ridge: s.Ridge,
		Hidden: s.Hidden}, nil)
	problem.Start = s.start(start)
	var err error
	c.Result, err = sim.RunInstances(ctx, e,
		func(int) (sim.Instance[float64], error) { return sim.Instance[float64]{Problem: problem}, nil }, nil)
	if err != nil {
		return c, err
	}
	for _, risk := range c.Metric("risk").Runs {
		c.escapeRounds = append(c.escapeRounds, firstCrossingRound(c.Rounds, risk, level))
	}
	return c, nil
}

// firstCrossingRound returns the first round at which the values are at most level. Between two records, it
// interpolates linearly.
func firstCrossingRound(rounds []int, values []float64, level float64) float64 {
	for i, v := range values {
		switch {
		case v > level:
		case i == 0:
			return float64(rounds[0])
		default:
			before := values[i-1]
			return math.Ceil(float64(rounds[i]) - (level-v)/(before-v)*float64(rounds[i]-rounds[i-1]))
		}
	}
	return math.Inf(1)
}
