package theory

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// TestSteadyStateAgainstSimulation compares the computed steady state with a simulation, for all combinations of
// weights and step sizes.
func TestSteadyStateAgainstSimulation(t *testing.T) {
	variants := map[string]func(*LMS){
		"normalised":   func(*LMS) {},
		"unnormalised": func(m *LMS) { m.Unnormalized, m.StepSize = true, 0.03 },
		"one of K":     func(m *LMS) { m.Participants = 1 },
		"all":          func(m *LMS) { m.Participants = 6 },
		"step":         func(m *LMS) { weigh(m) },
		"mean":         func(m *LMS) { weigh(m); m.WeightedMean = true },
	}
	for name, change := range variants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := mixed()
			change(&m)
			st, err := m.SteadyState()
			if err != nil {
				t.Fatal(err)
			}
			msd, stderr, mean := simulate(m, 50_000, rand.New(rand.NewPCG(1, 2)))
			if math.Abs(msd-st.MSD) > 5*stderr {
				t.Errorf("simulated %.6g ± %.2g, exact %.6g", msd, stderr, st.MSD)
			}
			if stderr > 0.03*st.MSD {
				t.Errorf("standard error %.2g of %.3g: the simulation says nothing", stderr, msd)
			}
			for j := range mean {
				if math.Abs(mean[j]-st.Mean[j]) > 0.1*math.Sqrt(st.MSD) {
					t.Errorf("mean %v, exact %v", mean, st.Mean)
				}
			}
		})
	}
}

func weigh(m *LMS) {
	for k := range m.Agents {
		m.Agents[k].Weight = 0.5 + float64(k)/5 // the weights of the agents sum to K
	}
}

// TestReplacement checks sampling with replacement for two agents by enumerating all draws (0,0), (0,1), (1,0) and
// (1,1).
func TestReplacement(t *testing.T) {
	m := mixed()
	m.Agents, m.Participants, m.Replacement = m.Agents[:2], 2, true
	d := 3
	start := moments{mat.NewDense(d, 1, []float64{1, -0.5, 2}), nil}
	start.second = product(start.mean, start.mean.T())
	both, single := m, m
	both.Replacement = false
	got := m.round().advance(start)
	want := both.round().advance(start)
	want.second.Scale(0.5, want.second)
	// The draws (0,0) and (1,1) are rounds with a single agent. Errors must be relative to the common optimum of both
	// agents.
	single.Replacement, single.Participants = false, 1
	one := single.round().advance(start)
	want.second.Add(want.second, scaled(0.5, one.second))
	if !mat.EqualApprox(got.second, want.second, 1e-14) {
		t.Errorf("second moment\n%v, want\n%v", mat.Formatted(got.second), mat.Formatted(want.second))
	}
	if !mat.EqualApprox(got.mean, want.mean, 1e-14) {
		t.Error("the mean depends on the sampling")
	}
}

// TestFirstOrderIsTheLimit checks that the relative error of the first-order formula halves if the step size is halved.
func TestFirstOrderIsTheLimit(t *testing.T) {
	for name, change := range map[string]func(*LMS){
		"normalised":  func(*LMS) {},
		"replacement": func(m *LMS) { m.Replacement = true },
		"all":         func(m *LMS) { m.Participants = len(m.Agents) },
		"weighted":    weigh,
		"mean":        func(m *LMS) { weigh(m); m.WeightedMean = true },
		"exact gradients": func(m *LMS) {
			for k := range m.Agents {
				m.Agents[k].BatchSize = 0
			}
		},
	} {
		m := mixed()
		change(&m)
		gap := func(mu float64) float64 {
			m.StepSize = mu
			st, err := m.SteadyState()
			if err != nil {
				t.Fatal(name, err)
			}
			first, err := m.FirstOrder()
			if err != nil {
				t.Fatal(name, err)
			}
			return st.MSD/first - 1
		}
		a, b := gap(1e-3), gap(5e-4)
		if math.Abs(a) > 0.02 || math.Abs(a/b-2) > 0.02 {
			t.Errorf("%s: exact/first order − 1 is %.3g at μ = 0.001 and %.3g at half of that; want one to be twice "+
				"the other", name, a, b)
		}
	}
}

// TestLimitsWithoutNormalisation checks problem 5.1 in chapter 5 of Vlaski and Sayed: for small step sizes the mean
// model tends to the minimiser of Σ E_k J_k. The deviation from the optimum w⁰ is then dominated by the squared bias.
func TestLimitsWithoutNormalisation(t *testing.T) {
	m := mixed()
	m.Unnormalized = true
	limit := m.SmallStepLimit()
	// At this minimiser the gradient of Σ E_k J_k is zero.
	h, g := mat.NewDense(3, 3, nil), mat.NewDense(3, 1, nil)
	for _, a := range m.Agents {
		e := scaled(float64(a.LocalSteps), a.Covariance)
		h.Add(h, e)
		var miss mat.Dense
		miss.Sub(mat.NewDense(3, 1, limit), mat.NewDense(3, 1, a.Optimum))
		g.Add(g, product(e, &miss))
	}
	if mat.Norm(g, 2) > 1e-12 {
		t.Errorf("the gradient of Σ E_k J_k at the limit is %v", mat.Formatted(g.T()))
	}
	distance := func(mu float64) float64 {
		m.StepSize = mu
		st, err := m.SteadyState()
		if err != nil {
			t.Fatal(err)
		}
		d := make([]float64, len(limit))
		for j := range d {
			d[j] = st.Mean[j] - limit[j]
		}
		return norm(d)
	}
	a, b := distance(2e-3), distance(1e-3)
	near(t, "ratio of the distances from the limit", a/b, 2, 0.02)
	optimum := m.Optimum()
	bias := 0.0
	for j := range limit {
		bias += (limit[j] - optimum[j]) * (limit[j] - optimum[j])
	}
	m.StepSize = 1e-6
	first, err := m.FirstOrder()
	if err != nil || bias < 1e-3 {
		t.Fatal(bias, err)
	}
	near(t, "first order without 1/E_k", first, bias, 1e-4)
	st, err := m.SteadyState()
	if err != nil {
		t.Fatal(err)
	}
	near(t, "exact without 1/E_k", st.MSD, bias, 1e-3)
}

// TestCurveReachesSteadyState checks that the learning curve starts at the distance of the initial model and converges
// to the steady state.
func TestCurveReachesSteadyState(t *testing.T) {
	m := mixed()
	curve, err := m.Curve([]float64{5, -3, 2}, 2000)
	if err != nil {
		t.Fatal(err)
	}
	st, err := m.SteadyState()
	if err != nil {
		t.Fatal(err)
	}
	near(t, "last of the curve", curve[2000], st.MSD, 1e-10)
	o := m.Optimum()
	near(t, "first of the curve", curve[0], math.Pow(norm([]float64{5 - o[0], -3 - o[1], 2 - o[2]}), 2), 1e-12)
}

// TestStabilityLimit checks the known stability limit of white LMS: μ < 2/(σ_h²(M+2)).
func TestStabilityLimit(t *testing.T) {
	white := LMS{Participants: 1,
		Agents: []LMSAgent{{Covariance: scaled2(4, 0.5), Optimum: []float64{1, 1, 1, 1}, NoiseVar: 1, LocalSteps: 1,
			BatchSize: 1}}}
	limit := 2 / (0.5 * 6)
	for _, c := range []struct {
		mu     float64
		stable bool
	}{{0.999 * limit, true}, {1.001 * limit, false}, {3 * limit, false}, {30 * limit, false}} {
		white.StepSize = c.mu
		st, err := white.SteadyState()
		if c.stable {
			near(t, "white LMS", st.MSD, c.mu*4/(2-c.mu*0.5*6), 1e-9)
			near(t, "its rate", st.Rate, 1-2*c.mu*0.5+c.mu*c.mu*0.25*6, 1e-9)
		}
		if stable := !errors.Is(err, ErrUnstable); stable != c.stable {
			t.Errorf("μ = %v: %v; the limit is %v", c.mu, err, limit)
		}
	}
	for _, m := range []LMS{{}, {StepSize: 1, Participants: 2, Agents: white.Agents},
		{Participants: 1, Agents: white.Agents}} {
		if m.Validate() == nil {
			t.Errorf("%+v was accepted", m)
		}
	}
}

func scaled2(d int, c float64) *mat.SymDense {
	s := mat.NewSymDense(d, nil)
	for i := range d {
		s.SetSym(i, i, c)
	}
	return s
}
