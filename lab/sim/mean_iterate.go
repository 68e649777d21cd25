package sim

import "github.com/fedmesh/fedmesh/learner"

// meanIterateTracker computes the mean of all M agents' parameters after each local step k = 1 … τ: x̄^(t,k) = (1/M)
// Σ_i x_i^(t,k) (Renard's notes, section 2). It wraps the draw source of the local steps, which is called once before
// each step.
type meanIterateTracker[T learner.Float] struct {
	draws learner.StepDrawSource[T]
	phi   []T
	step  int
	sums  [][]float64
	count int // number of agents added to the mean so far
}

func newShadow[T learner.Float](draws learner.StepDrawSource[T], steps, params int) *meanIterateTracker[T] {
	s := &meanIterateTracker[T]{draws: draws, sums: make([][]float64, steps)}
	for k := range s.sums {
		s.sums[k] = make([]float64, params)
	}
	return s
}

// begin resets the sums for a new round.
func (s *meanIterateTracker[T]) begin() {
	s.count = 0
	for _, sum := range s.sums {
		clear(sum)
	}
}

// follow starts to track an agent whose parameters are in phi.
func (s *meanIterateTracker[T]) follow(phi []T) { s.phi, s.step = phi, 0 }

// Next implements learner.StepDrawSource.
func (s *meanIterateTracker[T]) Next(m *learner.Model[T]) *learner.StepDraw[T] {
	s.addCurrentStep()
	return s.draws.Next(m)
}

// addCurrentStep adds the current parameters of the agent to the sum that belongs to the current step.
func (s *meanIterateTracker[T]) addCurrentStep() {
	if s.step > 0 {
		for j, v := range s.phi {
			s.sums[s.step-1][j] += float64(v)
		}
	}
	s.step++
}

// finish adds the last parameters of the current agent.
func (s *meanIterateTracker[T]) finish() {
	s.addCurrentStep()
	s.count++
}

// mean returns the mean of f over the mean iterates of all local steps of the last round.
func (s *meanIterateTracker[T]) mean(f func(w []float64) float64) float64 {
	if s.count == 0 {
		return 0
	}
	total := 0.0
	point := make([]float64, len(s.sums[0]))
	for _, sum := range s.sums {
		for j, v := range sum {
			point[j] = v / float64(s.count)
		}
		total += f(point)
	}
	return total / float64(len(s.sums))
}
