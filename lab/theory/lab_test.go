package theory

import (
	"math"
	"testing"
)

func labs() []Lab {
	base := Lab{Inputs: 4, RegressorVar: 1.3, NoiseVar: 0.1, Spread: 0.2, StepSize: 0.05, Agents: 8, Participants: 8,
		LocalSteps: 1, BatchSize: 1}
	all := []Lab{base}
	for _, change := range []func(*Lab){
		func(l *Lab) { l.Participants = 3 },
		func(l *Lab) { l.Participants, l.LocalSteps = 1, 1 },
		func(l *Lab) { l.Participants, l.LocalSteps = 5, 7 },
		func(l *Lab) { l.Participants, l.LocalSteps, l.BatchSize = 2, 4, 3 },
		func(l *Lab) { l.Participants, l.BatchSize = 2, 0 },
	} {
		l := base
		change(&l)
		all = append(all, l)
	}
	return all
}

// lms returns an equivalent LMS problem with K = 2M agents and optima 𝟙 ± c·e_j. For these optima Σ b_k b_kᵀ equals its
// expectation (K−1)σ_w² I in the lab problem.
func (l Lab) lms() LMS {
	m := LMS{StepSize: l.StepSize, Participants: l.Participants}
	c := math.Sqrt(l.Spread * float64(l.Agents-1) / 2)
	for k := range l.Agents {
		a := LMSAgent{Covariance: scaled2(l.Inputs, l.RegressorVar), NoiseVar: l.NoiseVar, LocalSteps: l.LocalSteps,
			BatchSize: l.BatchSize}
		for j := range l.Inputs {
			v := 1.0
			if j == k/2 {
				v += c * float64(1-2*(k%2))
			}
			a.Optimum = append(a.Optimum, v)
		}
		m.Agents = append(m.Agents, a)
	}
	return m
}

// TestLabAgainstLMS compares the results of the scalar recursion with the general matrix recursion of LMS.
func TestLabAgainstLMS(t *testing.T) {
	for _, l := range labs() {
		m := l.lms()
		st, err := m.SteadyState()
		if err != nil {
			t.Fatal(err)
		}
		near(t, "MSD", l.MSD(), st.MSD, 1e-10)
		first, err := m.FirstOrder()
		if err != nil {
			t.Fatal(err)
		}
		near(t, "first order", l.FirstOrder(), first, 1e-10)
		curve, err := m.Curve(make([]float64, l.Inputs), 30)
		if err != nil {
			t.Fatal(err)
		}
		got := l.Curve(curve[0], 30)
		for i := range curve {
			near(t, "curve", got[i], curve[i], 1e-10)
		}
	}
}

// TestLabSpecialCases checks known special cases: white LMS with one agent, and errors inversely proportional to K, E
// and B. Many identical agents must equal one agent with a larger batch (lecture eq. (53)). The published bound must
// exceed the error.
func TestLabSpecialCases(t *testing.T) {
	one := Lab{Inputs: 10, RegressorVar: 1, NoiseVar: 0.1, StepSize: 0.01, Agents: 1, Participants: 1, LocalSteps: 1,
		BatchSize: 1}
	near(t, "one agent", one.MSD(), 0.01*0.1*10/(2-0.01*12), 1e-12)
	near(t, "one agent, first order", one.FirstOrder(), 0.01*0.1*10/2, 1e-12)
	near(t, "(42)", one.Bound(), 0.01*0.1*10, 1e-12)
	many := one
	many.Agents = 100
	near(t, "one of a hundred", many.MSD(), one.MSD(), 1e-12)
	many.Participants = 100
	near(t, "gain of 100", one.FirstOrder()/many.FirstOrder(), 100, 1e-12)
	many.LocalSteps, many.BatchSize = 5, 2
	near(t, "gain of 1000", one.FirstOrder()/many.FirstOrder(), 1000, 1e-12)
	if one.StepSize = 0.2; !math.IsInf(one.MSD(), 1) {
		t.Error("μ = 0.2 is above the stability limit 2/12")
	}
	for _, l := range labs() {
		l.StepSize = 0.01
		if l.LocalSteps == 1 && l.BatchSize == 1 && l.Bound() < l.MSD() {
			t.Errorf("%+v: the bound %v is below %v", l, l.Bound(), l.MSD())
		}
	}
}

// TestGradientNoise checks that eq. (77) of the lecture gives eqs. (30) and (51) in the special cases.
func TestGradientNoise(t *testing.T) {
	l := Lab{Inputs: 3, RegressorVar: 2, NoiseVar: 0.5, Spread: 0.1, StepSize: 0.01, Agents: 10, Participants: 10,
		LocalSteps: 1, BatchSize: 1}
	s, beta2, sigma2, delta2 := 3*0.1*0.9, 4.0*4, 2*3*0.5, 4.0
	near(t, "(30)", l.GradientNoise(), (2*beta2*s+sigma2)/10, 1e-12)
	l.Participants = 1
	near(t, "(51)", l.GradientNoise(), 2*(beta2+2*delta2)*s+sigma2, 1e-12)
}
