package reproduce

import (
	"math"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/lab/sim/data"
)

// smallSaddle returns the experiment with six agents, two inputs, batches of two rows, and different response rates.
func smallSaddle() *saddleExperiment {
	s := defaultSaddle()
	s.Means, s.Hidden, s.Participants = data.SaddleMeans(6, 2), 2, []int{1, 6}
	s.LocalSteps, s.BatchSize, s.StepSize, s.ResponseProb = 4, 2, 0.04, 0.7
	s.Rounds, s.Steady, s.Runs = 800, 600, 8
	return s
}

func TestSaddle(t *testing.T) {
	s := smallSaddle()
	r := check(t, s)
	for _, key := range []string{"L1_ones_escape", "L6_ones_escape_theory", "L1_zero_v_final_J",
		"L6_zero_v_gradnorm2_ci95", "L1_zero_lambda_min"} {
		if v, ok := r.Values.Get(key); !ok || math.IsNaN(v) {
			t.Errorf("%s is %v, %v", key, v, ok)
		}
	}
	if v, ok := r.Values.Get("L1_zero_escape"); !ok || !math.IsNaN(v) {
		t.Errorf("from the saddle without v it escapes at %v, %v", v, ok)
	}
	s.Rounds, s.Steady = 90, 60 // too few rounds to leave the saddle
	r, err := s.Run(t.Context(), Options{Quick: true, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Findings {
		if f.Holds && strings.Contains(f.What, "escape") {
			t.Errorf("%+v", f)
		}
	}
}

func TestSaddleRefuses(t *testing.T) {
	for want, change := range map[string]func(*saddleExperiment){
		"means":                             func(s *saddleExperiment) { s.Means = nil },
		"all of equal length":               func(s *saddleExperiment) { s.Means[0] = []float64{1} },
		"0 hidden units":                    func(s *saddleExperiment) { s.Hidden = 0 },
		"from 1 to 6, the number of agents": func(s *saddleExperiment) { s.Participants = []int{7} },
		"steady from round 900":             func(s *saddleExperiment) { s.Steady = 900 },
		"1 runs":                            func(s *saddleExperiment) { s.Runs = 1 },
		"not a strict saddle":               func(s *saddleExperiment) { s.Ridge = 2 },
		"local_steps":                       func(s *saddleExperiment) { s.LocalSteps = 0 },
		"response.probability":              func(s *saddleExperiment) { s.ResponseProb = 2 },
	} {
		s := smallSaddle()
		change(s)
		if _, err := s.Run(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestCrossing(t *testing.T) {
	rounds := []int{0, 10, 20}
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3, 2, 1}, 15}, {[]float64{1, 2, 3}, 0}, {[]float64{3, 3, 3}, math.Inf(1)},
		{[]float64{3, 1.5, 1}, 10}, {[]float64{2, 1, 0}, 5},
	} {
		if got := firstCrossingRound(rounds, c.values, 1.5); got != c.want {
			t.Errorf("%v crosses 1.5 at %v, want %v", c.values, got, c.want)
		}
	}
}
